from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from support.runs.running_run import LONGEST_S, CommandLine, run_async, small_spec

from trainmaster.answers.runs import LaunchAnswer
from trainmaster.errors.errors import TrainmasterError
from trainmaster.runs.events.wait import wait_for_event
from trainmaster.runs.launch.launch import launch
from trainmaster.runs.planning.plan_run import plan_run
from trainmaster.store.run_id import RUN_ID
from trainmaster.sync.workspace import Workspace

VARIABLES = '{TRAINMASTER_STEP_S: "0"}'
_COMMAND = (sys.executable, "-c", "from trainmaster.cli import main; main()")


@pytest.fixture
def spec(tmp_path: Path) -> str:
    return small_spec(tmp_path, host="debug", env=VARIABLES)


def launched(workspace: Workspace, spec: str, **arguments: Any) -> LaunchAnswer:
    return run_async(lambda: launch(workspace, spec, **arguments))


def refused(workspace: Workspace, spec: str, **arguments: Any) -> TrainmasterError:
    with pytest.raises(TrainmasterError) as error:
        launched(workspace, spec, **arguments)
    return error.value


def nothing_is_left(workspace: Workspace, host: str = "debug") -> bool:
    """Neither a record nor a file of a run, half-written ones included."""
    folder = workspace.home.root / host / "runs"
    return workspace.control.runs() == [] and not (folder.is_dir() and os.listdir(folder))


def test_a_launch_gives_the_run_a_durable_id_and_starts_it(workspace: Workspace, spec: str) -> None:
    async def work() -> None:
        answer = await launch(workspace, spec)
        assert RUN_ID.fullmatch(answer.run_id) and answer.run_id.startswith("small-")
        assert (answer.name, answer.host, answer.attempt) == ("small", "debug", 1)
        done = await wait_for_event(workspace, answer.run_id, until=["completed"], timeout_s=60)
        assert done.event == "completed"

    run_async(work)


@pytest.mark.parametrize("name", ["secrets.env", "settings.yaml", "keys"])
@pytest.mark.parametrize("prefix", ["", "host:"])
def test_no_training_reads_our_own_secrets(
    workspace: Workspace, spec: str, tmp_path: Path, name: str, prefix: str
) -> None:
    link = tmp_path / "link"
    link.symlink_to(workspace.home.root / name)
    error = refused(workspace, spec, sets=[f"data.sources.main.path={prefix}{link}"])
    assert (error.code, error.field) == ("UNSAFE_NAME", "data.sources[0].path")
    assert nothing_is_left(workspace)


@pytest.mark.slow
def test_a_name_that_exists_gets_a_number(workspace: Workspace, spec: str) -> None:
    names = [launched(workspace, spec).name for _ in range(3)]
    assert names == ["small", "small-2", "small-3"]
    config = workspace.control.run("small-2").config
    assert config.name == "small-2"
    assert config.run_id == workspace.control.run("small-2").run_id


@pytest.mark.slow
def test_the_same_key_finds_the_first_run(workspace: Workspace, spec: str) -> None:
    first = launched(workspace, spec, idempotency_key="once")
    again = launched(workspace, spec, idempotency_key="once")
    assert again.run_id == first.run_id
    assert len(workspace.control.runs()) == 1


def test_the_same_key_for_something_else_is_refused(workspace: Workspace, spec: str) -> None:
    launched(workspace, spec, idempotency_key="once")
    assert refused(workspace, spec, idempotency_key="once", sets=["steps=10"]).code == (
        "IDEMPOTENCY_CONFLICT"
    )
    assert len(workspace.control.runs()) == 1


@pytest.mark.slow
@pytest.mark.parametrize(
    ("sets", "code"),
    [
        (["model.n_head=3"], "INVALID_VALUE"),
        (["data.sources.main.path=/nowhere"], "DATA_MISSING"),
        (["optimizer.moment=1"], "UNKNOWN_KEY"),
        (["host=moon"], "HOST_UNKNOWN"),
        (["optimizer.name=sophia"], "NOT_YET_SUPPORTED"),
    ],
)
def test_nothing_is_recorded_where_the_plan_refuses(
    workspace: Workspace, spec: str, sets: list[str], code: str
) -> None:
    error = refused(workspace, spec, sets=sets, idempotency_key="key")
    assert error.code == code
    assert nothing_is_left(workspace)
    assert launched(workspace, spec, idempotency_key="key").name == "small"


def test_planning_starts_and_records_nothing(workspace: Workspace, spec: str) -> None:
    run_async(lambda: plan_run(workspace, spec))
    assert nothing_is_left(workspace)


@pytest.mark.slow
def test_a_key_whose_launch_was_refused_by_the_host_is_free_again(
    workspace: Workspace, spec: str, home: Path
) -> None:
    blocking = blocked_by_a_file(home / "debug")
    error = refused(workspace, spec, idempotency_key="key")
    assert error.code == "ROOT_NOT_WRITABLE"
    assert workspace.control.runs() == []
    blocking.unlink()
    assert launched(workspace, spec, idempotency_key="key").name == "small"


@pytest.mark.parametrize("blocked", ["local", "local/runs"])
def test_a_root_that_cannot_be_written_is_reported_and_nothing_recorded(
    workspace: Workspace, home: Path, tmp_path: Path, blocked: str
) -> None:
    blocked_by_a_file(home / blocked)
    error = refused(workspace, small_spec(tmp_path))
    assert error.code == "ROOT_NOT_WRITABLE"
    assert str(home / "local") in error.message
    assert workspace.control.runs() == []


def blocked_by_a_file(folder: Path) -> Path:
    """A file where a host's folder would be, in place of what the test's host was lent."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    shutil.rmtree(folder, ignore_errors=True)
    folder.touch()
    return folder


def together(command: CommandLine, *arguments: str, times: int) -> list[dict[str, Any]]:
    """The answers of the same command given several times at once."""
    processes = [command.start(*arguments, "--json") for _ in range(times)]
    outputs = [process.communicate(timeout=LONGEST_S) for process in processes]
    assert [process.returncode for process in processes] == [0] * times, outputs
    return [json.loads(output) for output, _ in outputs]


@pytest.mark.long
@pytest.mark.slow
def test_launches_of_one_name_at_once_all_get_names_of_their_own(
    command: CommandLine, spec: str, tmp_path: Path
) -> None:
    path = tmp_path / "spec.yaml"
    path.write_text(spec)
    answers = together(command, "launch", str(path), times=4)
    assert len({answer["run_id"] for answer in answers}) == 4
    names = {row["name"] for row in command("runs")["runs"]}
    assert names == {"small", "small-2", "small-3", "small-4"}


@pytest.mark.slow
def test_launches_with_one_key_at_once_start_one_run(
    command: CommandLine, spec: str, tmp_path: Path
) -> None:
    path = tmp_path / "spec.yaml"
    path.write_text(spec)
    arguments = ("launch", str(path), "--idempotency-key", "once")
    answers = together(command, *arguments, times=4)
    assert len({answer["run_id"] for answer in answers}) == 1
    assert len(command("runs")["runs"]) == 1


@contextmanager
def full_disk(folder: Path, options: str) -> Iterator[Sequence[str]]:
    """What to put before a command that is to see a tiny disk in `folder`.

    A tmpfs in a mount namespace of the command's own where that may be made; else `folder` becomes
    a link into a small tmpfs of the machine, which is filled meanwhile.
    """
    script = f'mount -t tmpfs -o mode=0700,{options} none "$0" && exec "$@"'
    folder.mkdir(parents=True, exist_ok=True)
    for unshare in (["unshare", "-m"], ["unshare", "-rm"]):
        prefix = [*unshare, "sh", "-c", script, str(folder)]
        if subprocess.run([*prefix, "true"], capture_output=True).returncode == 0:
            yield prefix
            return
    small = min(
        (Path("/run/lock"), Path("/dev/shm")), key=lambda path: shutil.disk_usage(path).free
    )
    folder.rmdir()
    folder.symlink_to(small / f"trainmaster-{os.getpid()}")
    folder.resolve().mkdir()
    filler = small / f"trainmaster-filler-{os.getpid()}"
    try:
        with filler.open("wb") as file:
            os.posix_fallocate(file.fileno(), 0, shutil.disk_usage(small).free - (16 << 10))
        yield []
    finally:
        filler.unlink()
        shutil.rmtree(folder.resolve())


@pytest.mark.slow
@pytest.mark.parametrize(
    ("where", "options"),
    [("debug", "size=1g,nr_inodes=20"), ("debug", "size=16k"), ("", "size=16k")],
)
def test_a_full_disk_is_reported_and_leaves_nothing_on_record(
    command: CommandLine, home: Path, spec: str, tmp_path: Path, where: str, options: str
) -> None:
    path = tmp_path / "spec.yaml"
    path.write_text(spec)
    with full_disk(home / where, options) as prefix:
        done = subprocess.run(
            [*prefix, *_COMMAND, "launch", str(path), "--json"],
            env=command.environment,
            capture_output=True,
            text=True,
        )
    error = json.loads(done.stdout)["error"]
    seen_when_planning = options == "size=16k" or (where == "debug" and not prefix)
    assert error["code"] == ("DISK_TOO_SMALL" if seen_when_planning else "DISK_FULL")
    assert done.returncode == 1
    assert command("runs")["runs"] == []


@pytest.mark.parametrize("variable", ["TRAINMASTER_FAULTS=bogus@x", "TRAINMASTER_STEP_S=soon"])
def test_a_rehearsal_that_cannot_be_read_is_refused(
    workspace: Workspace, tmp_path: Path, variable: str
) -> None:
    spec = small_spec(tmp_path, host="debug")
    with pytest.raises(TrainmasterError) as refused:
        run_async(lambda: launch(workspace, spec, sets=[f"env.{variable}"]))
    assert (refused.value.code, refused.value.field) == ("INVALID_VALUE", "env")
    assert workspace.control.runs() == []
