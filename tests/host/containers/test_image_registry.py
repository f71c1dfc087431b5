"""Whether a registry has an image, as Docker's and Podman's own programs find it."""

from __future__ import annotations

import os
import shutil
import socket
from pathlib import Path

import pytest
from support.host.container_images import Podman, docker_socket, registry
from support.host.docker_daemon import DockerDaemon, docker  # noqa: F401 - fixture

from trainer_runtime.host.containers.engine import Engine, find_engine
from trainer_runtime.host.containers.registry import refused_by_registry

pytestmark = pytest.mark.engine


def is_there(engine: Engine, full: str) -> bool:
    return refused_by_registry(engine, full) is None


def test_podman_knows_what_its_registry_has_without_a_pull(
    podman: Podman, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = find_engine(os.environ)
    with registry(podman, "known") as (address, digest):
        monkeypatch.setenv("CONTAINERS_REGISTRIES_CONF", str(podman.folder / "registries.conf"))
        assert is_there(engine, f"{address}/known:1")
        assert is_there(engine, f"{address}/known@{digest}")
        refused = refused_by_registry(engine, f"{address}/known:2")
        assert refused is not None and refused.final
        assert "manifest unknown" in refused.words
        assert address not in podman("images")
    gone = refused_by_registry(engine, f"{address}/known:1")
    assert gone is not None and not gone.final
    assert "connection refused" in gone.words


def test_docker_knows_what_a_registry_on_loopback_has(
    docker: DockerDaemon,  # noqa: F811
    podman: Podman,
) -> None:
    engine = find_engine(os.environ)
    assert engine.kind == "docker"
    with registry(podman, "docked") as (address, digest):
        assert is_there(engine, f"{address}/docked:1")
        assert is_there(engine, f"{address}/docked@{digest}")
        refused = refused_by_registry(engine, f"{address}/docked:2")
        assert refused is not None and refused.final
        assert address not in docker("images")
    gone = refused_by_registry(engine, f"{address}/docked:1")
    assert gone is not None and not gone.final


def test_what_dockers_program_says_before_podman_is_not_final(
    podman: Podman, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "docker").symlink_to(shutil.which("docker") or "/missing")
    with docker_socket(podman) as address, registry(podman, "fronted") as (place, _):
        monkeypatch.setenv("DOCKER_HOST", address)
        engine = find_engine({**os.environ, "PATH": str(tmp_path)})
        assert engine.kind == "podman"
        refused = refused_by_registry(engine, f"{place}/fronted:2")
        assert refused is not None and not refused.final


def test_a_registry_that_does_not_answer_is_not_waited_for_and_says_nothing_of_the_image(
    podman: Podman, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        listed = podman.folder / "silent.conf"
        listed.write_text(f'[[registry]]\nlocation = "{address}"\ninsecure = true\n')
        monkeypatch.setenv("CONTAINERS_REGISTRIES_CONF", str(listed))
        refused = refused_by_registry(find_engine(os.environ), f"{address}/any:1", within_s=1.0)
    assert refused is not None and not refused.final
    assert refused.words == "no answer within 1 s"
