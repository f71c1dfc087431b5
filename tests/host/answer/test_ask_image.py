"""What a host says before a launch of the image that it names: tried where it is there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from support.host.container_images import (  # noqa: F401 - fixtures
    BARE,
    EMPTY,
    TORCH,
    Podman,
    podman,
    podman_folder,
    registry,
)
from support.host.docker_daemon import IMAGE, DockerDaemon, docker  # noqa: F401 - fixture
from support.host.scripted_processes import CONFIG

from trainer_runtime.core.config import RunConfig
from trainer_runtime.core.environment.image_problem import ImageAnswer, ImageProblem
from trainer_runtime.host.answer import ask_image

pytestmark = pytest.mark.engine


@pytest.fixture(autouse=True)
def own_podman(podman: Podman) -> Podman:  # noqa: F811
    return podman


def config_of(name: str, folder: Path, **changes: Any) -> RunConfig:
    compute = {"device": "cpu", "launcher": "docker", "image": name, "shm_size": "64m"}
    data = {"sources": [], "cache_dir": str(folder / "nowhere")}
    return RunConfig.parse({**CONFIG, "compute": compute, "data": data, **changes})


def checked(name: str, folder: Path, **changes: Any) -> ImageAnswer:
    config = config_of(name, folder, **changes)
    return ask_image.check(config, ("torch>=2.3",), folder / "cache")


def problem(answer: ImageAnswer) -> ImageProblem:
    assert answer.problem is not None, answer
    return answer.problem


@pytest.mark.smoke
def test_an_image_that_can_train_is_tried_once_and_leaves_no_container(
    own_podman: Podman, tmp_path: Path
) -> None:
    found = checked(TORCH, tmp_path)
    assert (found.problem, found.untried) == (None, None)
    assert str(found.digest).startswith("localhost/torch@sha256:")
    assert own_podman.containers() == []
    (kept,) = (tmp_path / "cache/torch").iterdir()
    before = kept.stat().st_mtime_ns
    assert checked(TORCH, tmp_path) == found
    assert kept.stat().st_mtime_ns == before


def test_an_image_without_python_or_pytorch_is_named_and_nothing_is_written(
    own_podman: Podman, tmp_path: Path
) -> None:
    assert problem(checked(EMPTY, tmp_path)).kind == "no_python"
    lacks = problem(checked(BARE, tmp_path))
    assert lacks.what == f"/usr/bin/python3 of compute.image {BARE} lacks torch>=2.3"
    assert "`RUN python3 -m pip install 'torch>=2.3'`" in lacks.remedy
    assert list(tmp_path.iterdir()) == []
    assert own_podman.containers() == []


@pytest.mark.smoke
def test_docker_tries_an_image_alike(docker: DockerDaemon, tmp_path: Path) -> None:  # noqa: F811
    lacks = problem(checked(IMAGE, tmp_path))
    assert (lacks.kind, lacks.engine, lacks.lacking) == ("packages", "docker", ("torch>=2.3",))
    program = config_of(IMAGE, tmp_path, script={"folder": str(tmp_path), "command": ["python3"]})
    found = ask_image.check(program, (), tmp_path / "cache")
    assert (found.problem, found.untried) == (None, None)
    assert docker.containers() == []


def test_an_image_is_tried_without_a_network_and_without_files_of_the_host(
    own_podman: Podman, tmp_path: Path
) -> None:
    """What the image's Python finds when it starts says so."""
    (own_podman.planted / "alone").mkdir()
    (own_podman.planted / "alone/sitecustomize.py").write_text(
        "import os, sys\n"
        'found = sorted(os.listdir("/sys/class/net"))\n'
        f"print(found, os.path.exists({str(tmp_path)!r}), file=sys.stderr, flush=True)\n"
        "os._exit(3)\n"
    )
    env = {"PYTHONPATH": str(own_podman.planted / "alone")}
    said = problem(checked(BARE, tmp_path, env=env)).said
    assert said == "['lo'] False"


def test_an_image_that_does_not_answer_is_left_to_the_preparation_and_removed(
    own_podman: Podman, tmp_path: Path
) -> None:
    (own_podman.planted / "hangs").mkdir()
    (own_podman.planted / "hangs/sitecustomize.py").write_text("import time\ntime.sleep(3600)\n")
    env = {"PYTHONPATH": str(own_podman.planted / "hangs")}
    found = ask_image.check(config_of(BARE, tmp_path, env=env), (), tmp_path, within_s=5.0)
    assert (found.problem, found.untried) == (None, "no answer within 5 s")
    assert own_podman.containers() == []


def test_packages_that_mounted_folders_may_hold_are_left_to_the_preparation(
    own_podman: Podman, tmp_path: Path
) -> None:
    lines = ("a-package-of-nobody>=1",)
    assert problem(ask_image.check(config_of(BARE, tmp_path), lines, tmp_path)).kind == "packages"
    mounted = config_of(BARE, tmp_path, env={"PYTHONPATH": str(tmp_path)})
    found = ask_image.check(mounted, lines, tmp_path)
    assert found.problem is None
    assert "env.PYTHONPATH may name folders" in str(found.untried)


def test_an_image_that_is_not_there_is_asked_for_and_not_pulled(
    own_podman: Podman, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with registry(own_podman, "asked") as (address, _):
        listed = str(own_podman.folder / "registries.conf")
        monkeypatch.setenv("CONTAINERS_REGISTRIES_CONF", listed)
        assert checked(f"{address}/asked:1", tmp_path) == ImageAnswer()
        refused = problem(checked(f"{address}/asked:2", tmp_path))
        assert (refused.kind, refused.engine) == ("pull", "podman")
        assert address not in own_podman("images")
    silent = checked(f"{address}/asked:2", tmp_path)
    assert silent.problem is None
    assert "connection refused" in str(silent.untried)


def test_an_image_is_found_without_running_it_or_asking_a_registry(own_podman: Podman) -> None:
    assert str(ask_image.find(EMPTY).digest).startswith("localhost/empty@sha256:")
    assert ask_image.find("127.0.0.1:1/never:1") == ImageAnswer()
    assert problem(ask_image.find("localhost/of-another:1")).kind == "local"


def test_a_host_without_an_engine_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    for found in (ask_image.find(BARE), checked(BARE, tmp_path)):
        assert problem(found).kind == "engine"
        assert "apt install podman" in problem(found).remedy
