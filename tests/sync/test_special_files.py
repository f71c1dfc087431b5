"""Pipes, sockets and devices in a run's folder are neither read nor waited for."""

from __future__ import annotations

import asyncio
import os
import socket
import stat
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
from support.core.journal_records import lines, metric, started
from support.sync.followed_run import FakeRun, FollowedWorkspace, heartbeat

from trainer_runtime.core.files.compacted import REGION_BYTES, archive_of
from trainer_runtime.core.files.listing import LeftOut
from trainer_runtime.core.protocol.followed_files import (
    APPENDED_IN_ATTEMPT,
    APPENDED_IN_RUN,
    REPLACED_IN_ATTEMPT,
    REPLACED_IN_RUN,
)
from trainer_runtime.host.files.files import LineReader
from trainer_runtime.host.watch.pace import last_steps
from trainmaster.backends.hosts import LocalHost
from trainmaster.home.paths import Home
from trainmaster.sync.follow import catch_up

pytestmark = [pytest.mark.attack, pytest.mark.slow]

_BOUND_S = 60.0
_FOLLOWED = (*APPENDED_IN_RUN, *REPLACED_IN_RUN)
_OF_ATTEMPT = (*APPENDED_IN_ATTEMPT, *REPLACED_IN_ATTEMPT)


def _pipe(path: Path) -> None:
    os.mkfifo(path)


def _socket(path: Path) -> None:
    folder = os.open(path.parent, os.O_RDONLY)
    try:  # a socket's own path may have 107 bytes
        with socket.socket(socket.AF_UNIX) as made:
            made.bind(f"/proc/self/fd/{folder}/{path.name}")
    finally:
        os.close(folder)


def _device(path: Path) -> None:
    """Endless zeros."""
    try:
        os.mknod(path, 0o666 | stat.S_IFCHR, os.makedev(1, 5))
    except PermissionError:
        pytest.skip("making devices takes root")


@pytest.fixture
def workspace(home: Path, tmp_path: Path) -> Iterator[FollowedWorkspace]:
    home.mkdir()
    workspace = FollowedWorkspace(Home(home), LocalHost("box", tmp_path / "box"))
    yield workspace
    workspace.close()


@pytest.mark.parametrize("make", [_pipe, _socket, _device])
def test_special_files_in_a_runs_folder_hold_up_nothing(
    workspace: FollowedWorkspace, tmp_path: Path, make: Callable[[Path], None]
) -> None:
    bad = FakeRun(workspace, tmp_path / "box" / "runs" / "bad-abc234")
    good = FakeRun(workspace, tmp_path / "box" / "runs" / "good-abc234")
    heartbeat(good, t=1e9)
    good.write("attempts/1/events.jsonl", b"".join(lines([started(), metric(1)])))
    names = [*_FOLLOWED, *(f"attempts/1/{name}" for name in _OF_ATTEMPT)]
    names += ["final/model.safetensors", "checkpoints/step-00000020/manifest.json"]
    for name in names:
        bad.path(name).parent.mkdir(parents=True, exist_ok=True)
        make(bad.path(name))
    packed = FakeRun(workspace, tmp_path / "box" / "runs" / "packed-abc234")
    for name in ("supervisor.jsonl", "attempts/1/events.jsonl"):
        packed.write(name, b"")
        os.truncate(packed.path(name), REGION_BYTES)  # a hole, as of what is in an archive
        archive = packed.path(archive_of(name, 0))
        archive.parent.mkdir()
        make(archive)

    async def use() -> Sequence[object]:
        async with asyncio.timeout(_BOUND_S):
            await catch_up(workspace, "box")
            backend = workspace.backend("box")
            listed = await backend.list_files(bad.run_id, "**")
            await backend.verify_checkpoints(bad.run_id)
            return listed

    listed = asyncio.run(use())
    assert good.steps() == [1]
    assert [one for one in listed if not isinstance(one, LeftOut)] == []
    mirrored = [path for path in bad.mirror.root.rglob("*") if path.is_file()]
    assert sum(path.stat().st_size for path in mirrored if path.name != "following.json") == 0


@pytest.mark.parametrize("make", [_pipe, _socket, _device])
def test_a_supervisor_reads_no_special_file_in_place_of_events(
    tmp_path: Path, make: Callable[[Path], None]
) -> None:
    make(tmp_path / "events.jsonl")
    assert list(LineReader(tmp_path / "events.jsonl").read()) == []
    assert last_steps(tmp_path / "events.jsonl") == {}
