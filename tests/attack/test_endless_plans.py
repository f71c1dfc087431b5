"""A plan of files without an end, or with a git that hangs: both end with the call."""

from __future__ import annotations

import asyncio
import hashlib
import os
import random
import threading
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path

import pytest
from support.attack.endless_files import ENDLESS
from support.attack.git_configurations import new_repository

from trainmaster.backends.hosted import HostedBackend
from trainmaster.backends.hosts import LocalHost
from trainmaster.backends.launchers.process import ProcessLauncher
from trainmaster.calls.work import Work, working
from trainmaster.errors.errors import StateError
from trainmaster.home.paths import Home
from trainmaster.plan.spec import load_spec
from trainmaster.runs.planning.code_folder import read_code
from trainmaster.runs.planning.plan_run import plan_spec
from trainmaster.runs.planning.probe_code import probe_code
from trainmaster.runs.planning.probe_data import probe_data
from trainmaster.sync.workspace import Workspace

_HOME = Home(Path("/nowhere"))

pytestmark = pytest.mark.attack

_BOUND_S = 60.0
_END_S = 5.0


@pytest.fixture
def reading(started_here: Callable[[], list[int]]) -> Callable[[], list[object]]:
    """Returns the threads and processes that read for this test."""

    def threads() -> list[threading.Thread]:
        return [thread for thread in threading.enumerate() if thread.name == "trainmaster-read"]

    return lambda: [*threads(), *started_here()]


def _until(condition: Callable[[], bool], within_s: float) -> None:
    deadline = time.monotonic() + within_s
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def _until_idle(reading: Callable[[], list[object]]) -> None:
    deadline = time.monotonic() + _END_S
    while left := reading():
        assert time.monotonic() < deadline, f"still reading: {left}"
        time.sleep(0.01)


async def _cancelled_while(
    reads: Callable[[], bool], probe: Callable[[], Awaitable[object]]
) -> None:
    with working(Work()):
        task = asyncio.ensure_future(probe())
        await asyncio.to_thread(_until, lambda: reads() or task.done(), _BOUND_S)
        assert not task.done(), task.result()
        task.cancel()
        await asyncio.wait([task])


def _data_probe(tmp_path: Path) -> Callable[[], Awaitable[object]]:
    """Of validation that is as long as what is trained on: both are compared to their end."""
    for name in ("train.txt", "own.txt"):
        ENDLESS["sparse"](tmp_path / name, random.Random(0))
    spec = load_spec(
        "name: small\nframework: nanogpt\nmodel: {n_layer: 1, n_head: 2, d_model: 32}\n"
        f"data: {{sources: [{{name: main, path: '{tmp_path}/train.txt'}}], "
        f"validation: [{{name: own, path: '{tmp_path}/own.txt'}}], seq_len: 32}}\n"
        "steps: 20\nhost: box\n"
    )
    backend = HostedBackend(LocalHost("box", tmp_path / "box"), ProcessLauncher())
    return lambda: probe_data(spec, backend)


def _compares() -> bool:
    """Whether this process reads the validation."""
    for number in os.listdir("/proc/self/fd"):
        with suppress(OSError):  # closed meanwhile
            if os.readlink(f"/proc/self/fd/{number}").endswith("own.txt"):
                return True
    return False


def test_a_cancelled_plan_of_endless_data_leaves_no_thread(
    tmp_path: Path, reading: Callable[[], list[object]]
) -> None:
    asyncio.run(_cancelled_while(_compares, _data_probe(tmp_path)))
    _until_idle(reading)


def test_a_plan_of_endless_data_ends_by_its_time(
    tmp_path: Path, reading: Callable[[], list[object]]
) -> None:
    async def scenario() -> None:
        with working(Work(within_s=1.0)):
            await _data_probe(tmp_path)()

    with pytest.raises(StateError) as caught:
        asyncio.run(scenario())
    assert caught.value.code == "READ_TOO_LONG"
    _until_idle(reading)


def test_a_plan_that_reads_too_long_says_what_to_leave_out(
    workspace: Workspace, tmp_path: Path
) -> None:
    program = new_repository(tmp_path / "program")
    spec = (
        "name: a\nframework: script\nhost: local\n"
        f"script: {{path: {program}, command: [python3, train.py]}}"
    )
    with working(Work(within_s=0.0)), pytest.raises(StateError) as caught:
        asyncio.run(plan_spec(workspace, spec, None, ()))
    assert caught.value.code == "READ_TOO_LONG"
    assert "folders that the spec names" in caught.value.fix


def test_a_cancelled_plan_leaves_no_git(
    workspace: Workspace,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    reading: Callable[[], list[object]],
) -> None:
    program = new_repository(tmp_path / "program")
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "git").write_text("#!/bin/sh\nexec /bin/sleep 600\n")
    (programs / "git").chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    spec = load_spec(
        "name: a\nframework: script\nhost: gpu1\n"
        f"script: {{path: {program}, command: [python3, train.py]}}"
    )
    script = spec.script
    assert script is not None
    asyncio.run(
        _cancelled_while(lambda: bool(reading()), lambda: probe_code(workspace, spec, script))
    )
    _until_idle(reading)


def test_a_growing_file_of_a_program_is_read_to_the_end_that_it_had(tmp_path: Path) -> None:
    path, is_over = tmp_path / "train.log", threading.Event()
    path.write_bytes(bytes(8 << 20))

    def grow() -> None:
        with path.open("ab", buffering=0) as file:
            while not is_over.is_set() and file.seek(0, os.SEEK_CUR) < 128 << 20:
                file.write(b"x" * (1 << 16))

    writer = threading.Thread(target=grow)
    writer.start()
    try:
        (file,) = read_code(tmp_path, 256 << 20, _HOME).files
    finally:
        is_over.set()
        writer.join(_BOUND_S)
    with path.open("rb") as opened:
        assert file.sha256 == hashlib.sha256(opened.read(file.size_bytes)).hexdigest()
