"""The command lines that start containers, and what a container sees."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from support.host import container_command, rootless_container
from support.host.container_images import BARE, PYTHON, Podman
from support.host.scripted_processes import CONFIG
from support.runs.running_run import own_run_id

import trainer_runtime
from trainer_runtime.core.config import RunConfig
from trainer_runtime.host.containers.container import Container, Image, unmountable
from trainer_runtime.host.containers.engine import Engine

DOCKER, PODMAN = Engine("docker", "/usr/bin/docker", "28"), Engine("podman", "/bin/podman", "5")
SECRET = "HF_TOKEN"
_NOBODY, _GROUP = 65534, 4343


def document(folder: Path, **compute: object) -> dict[str, object]:
    given = {"device": "cpu", "launcher": "docker", "image": BARE, "shm_size": "2g", **compute}
    data = {
        "sources": [{"name": "main", "path": str(folder / "read"), "format": "text"}],
        "cache_dir": str(folder / "cache"),
    }
    return {**CONFIG, "run_id": own_run_id("boxed"), "compute": given, "data": data}


def config(folder: Path, **compute: object) -> RunConfig:
    return RunConfig.parse(document(folder, **compute))


def container(engine: Engine, folder: Path, **compute: object) -> Container:
    for name in ("read", "cache", "run"):
        (folder / name).mkdir(exist_ok=True)
    image = Image(engine, BARE, BARE, PYTHON)
    marker = {"TRAINMASTER_ATTEMPT": "boxed/1"}
    return Container(image, folder / "run", config(folder, **compute), Path("c.json"), marker)


def values(words: list[str], option: str) -> list[str]:
    return [words[at + 1] for at, word in enumerate(words) if word == option]


def test_all_that_the_training_writes_and_reads_is_mounted_where_it_is(tmp_path: Path) -> None:
    words = container(PODMAN, tmp_path).command(["python3"], {})
    assert values(words, "--volume") == [
        f"{tmp_path}/{name}:{tmp_path}/{name}:{mode}"
        for name, mode in (("run", "rw"), ("cache", "rw"), ("read", "ro"))
    ]
    assert values(words, "--shm-size") == [f"{2 << 30}b"]
    assert (values(words, "--network"), values(words, "--pid")) == (["host"], ["host"])
    assert values(words, "--entrypoint") == [PYTHON]
    assert not values(words, "--device") and "--gpus" not in words


def test_gpus_come_as_the_engine_takes_them(tmp_path: Path) -> None:
    gpu = {"device": "cuda", "gpus": 2}
    words = container(PODMAN, tmp_path, **gpu).command(["python3"], {})
    assert values(words, "--device") == ["nvidia.com/gpu=all"]
    assert values(container(DOCKER, tmp_path, **gpu).command([], {}), "--gpus") == ["all"]


@pytest.mark.parametrize(
    ("engine", "user"),
    [
        (PODMAN, f"{os.getuid()}:{os.getgid()}"),
        (DOCKER, f"{os.getuid()}:{os.getgid()}"),
        (replace(PODMAN, rootless=True), "0:0"),
        (replace(DOCKER, rootless=True), "0:0"),
    ],
)
def test_files_belong_to_whom_the_supervisor_runs_as(
    engine: Engine, user: str, tmp_path: Path
) -> None:
    assert values(container(engine, tmp_path).command([], {}), "--user") == [user]


def test_variables_of_the_host_come_without_their_values_and_few_of_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("HTTPS_PROXY", "NCCL_DEBUG", "LD_LIBRARY_PATH", SECRET):
        monkeypatch.setenv(name, "user:password")
    words = container(PODMAN, tmp_path).trainer_command(3, ["python3"], Path("train.log"))
    given = {one.partition("=")[0]: one.partition("=")[2] for one in values(words, "--env")}
    assert {"HTTPS_PROXY", "NCCL_DEBUG"} <= set(given)
    assert not {"LD_LIBRARY_PATH", SECRET, "PATH"} & set(given)
    assert "user:password" not in " ".join(words)
    assert given["TRAINMASTER_ATTEMPT"] == "boxed/1"


def test_a_path_with_a_colon_is_found_before_the_engine_misreads_it(tmp_path: Path) -> None:
    assert unmountable(config(tmp_path), tmp_path / "run") is None
    (tmp_path / "run:1").mkdir()
    assert unmountable(config(tmp_path), tmp_path / "run:1") == str(tmp_path / "run:1")


def _need_root() -> None:
    if os.geteuid() != 0:
        pytest.skip("to become another user takes root")


def _run_of_nobody(folder: Path) -> Path:
    """A run's folder in one that an ordinary user may enter, with data that a group may read."""
    run, data = folder / "run", folder / "read"
    shutil.copytree(Path(trainer_runtime.__file__).parent, run / "trainer_runtime")
    (run / "config.json").write_text(json.dumps(document(folder)))
    for path in (run, folder):
        os.chown(path, _NOBODY, _NOBODY)
    data.mkdir()
    (data / "by-group").write_text("read")
    (data / "by-group").chmod(0o640)
    os.chown(data / "by-group", 0, _GROUP)
    return run


def test_what_a_group_of_the_user_may_read_is_read_in_roots_engine(
    podman: Podman,
) -> None:
    _need_root()
    folder = Path(tempfile.mkdtemp(prefix="tm-podman-"))
    folder.chmod(0o755)
    run = _run_of_nobody(folder)
    command = subprocess.run(
        [PYTHON, container_command.__file__, str(folder), BARE, "cat", "../read/by-group"],
        env={"PYTHONPATH": str(run)},
        user=_NOBODY,
        group=_NOBODY,
        extra_groups=[_GROUP, _NOBODY],
        stdout=subprocess.PIPE,
        check=True,
    )
    words = json.loads(command.stdout)
    assert values(words, "--group-add") == [str(_GROUP)]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    shutil.rmtree(folder)
    assert (done.stdout, done.returncode) == ("read", 0), done.stderr


@pytest.fixture
def rootless() -> Iterator[Podman]:
    """The Podman of a user who has no subordinate ids."""
    _need_root()
    folder = Path(tempfile.mkdtemp(prefix="tm-podman-"))
    folder.chmod(0o755)
    made = Podman(folder, _NOBODY, _NOBODY)
    made.make(BARE)
    yield made
    made.end()
    shutil.rmtree(folder)


def test_a_container_of_an_ordinary_user_is_seen_and_ended_as_any_process(
    rootless: Podman,
) -> None:
    run = _run_of_nobody(rootless.folder)
    done = subprocess.run(
        [PYTHON, rootless_container.__file__, str(rootless.folder), BARE],
        env={**os.environ, **rootless.environment, "PYTHONPATH": str(run)},
        user=_NOBODY,
        group=_NOBODY,
        extra_groups=[_GROUP],
        capture_output=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr.decode()
    assert json.loads(done.stdout) == {
        "rootless": True,
        "owner": _NOBODY,
        "same_pid": True,
        "log": "inside read\n",
        "signalled": True,
        "code": -15,
        "left": [],
    }
