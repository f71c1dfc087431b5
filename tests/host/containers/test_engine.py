"""Which engine is found, and what is said where none can be used."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
from support.host.container_images import Podman, docker_socket

from trainer_runtime.host.answer.check import engine
from trainer_runtime.host.containers.engine import NoEngineError, find_engine


def path_with(folder: Path, *programs: str) -> dict[str, str]:
    """An environment whose search path has these programs alone."""
    folder.mkdir(exist_ok=True)
    for name in programs:
        (folder / name).symlink_to(shutil.which(name) or "/missing")
    return {**os.environ, "PATH": str(folder)}


def test_podman_is_found_with_its_version_and_whose_it_is(podman: Podman) -> None:
    found = find_engine(os.environ)
    assert (found.kind, found.rootless) == ("podman", False)
    assert found.label == f"podman {podman('version', '--format', '{{.Client.Version}}')}"
    assert [(row.name, row.state, row.found) for row in engine()] == [
        ("containers", "ok", found.label)
    ]


def test_dockers_program_before_podman_is_taken_for_podman(
    podman: Podman, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with docker_socket(podman) as address:
        monkeypatch.setenv("DOCKER_HOST", address)
        only_docker = path_with(tmp_path / "docker", "docker")
        found = find_engine(only_docker)
        assert (found.kind, Path(found.program).name) == ("podman", "docker")
        both = path_with(tmp_path / "both", "docker", "podman")
        assert Path(find_engine(both).program).name == "podman"


def test_a_daemon_that_does_not_answer_is_named_with_its_own_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/none.sock")
    with pytest.raises(NoEngineError, match=r"docker: .*none\.sock"):
        find_engine(path_with(tmp_path / "docker", "docker"))
    with pytest.raises(NoEngineError, match="neither docker nor podman"):
        find_engine(path_with(tmp_path / "none"))
    monkeypatch.setenv("PATH", str(tmp_path / "docker"))
    (row,) = engine()
    assert row.state == "warn"
    assert "group docker" in row.remedy
