"""What a host may write for others: asked before each write."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.attack.small_disk import free_bytes, small_disk
from support.host.attached_folder import limit

from trainer_runtime.core.policy.write_bounds import Refusal, WriteBounds
from trainer_runtime.host.files.layout import RunFolder
from trainer_runtime.host.files.write_room import WriteRoom, bounds_of

MIB, GIB = 1 << 20, 1 << 30


def attached(root: Path, name: str) -> RunFolder:
    run = RunFolder(root / "runs" / name)
    run.attempt(1).root.mkdir(parents=True)
    run.attempt(1).source.touch()
    return run


def room_of(run: RunFolder) -> WriteRoom:
    return WriteRoom(run, 1, run.attempt(1).train_log)


def test_one_log_is_bounded_by_its_copy(tmp_path: Path) -> None:
    limit(tmp_path, source=2 * MIB)
    run = attached(tmp_path, "one")
    assert room_of(run).take(2 * MIB) is None
    run.attempt(1).train_log.write_bytes(bytes(MIB))
    assert room_of(run).take(MIB) is None
    assert room_of(run).take(MIB + 1) == Refusal("source", 2 * MIB)


def test_a_run_is_bounded_by_all_that_it_holds(tmp_path: Path) -> None:
    limit(tmp_path, run=4 * MIB)
    run = attached(tmp_path, "one")
    run.attempt(2).root.mkdir()
    run.attempt(2).events.write_bytes(b"x" * (2 * MIB))
    room = room_of(run)
    assert room.take(MIB) is None
    assert room.take(2 * MIB) == Refusal("run", 4 * MIB)  # what was taken counts at once


def test_a_log_that_its_program_writes_is_not_counted(tmp_path: Path) -> None:
    limit(tmp_path, run=2 * MIB, source=MIB)
    run = RunFolder(tmp_path / "runs" / "one")
    run.attempt(1).root.mkdir(parents=True)
    run.attempt(1).train_log.write_bytes(b"x" * (3 * MIB))
    assert WriteRoom(run, 1, None).lacks(MIB) is None
    run.attempt(1).events.write_bytes(b"x" * (2 * MIB))
    assert WriteRoom(run, 1, None).lacks(MIB) == Refusal("run", 2 * MIB)


def test_all_runs_of_a_host_share_one_total(tmp_path: Path) -> None:
    limit(tmp_path, root=16 * MIB)
    runs = [attached(tmp_path, name) for name in ("one", "two")]
    written = dict.fromkeys(runs, 0)
    for run, room in [(run, room_of(run)) for run in runs] * 2:
        while (refusal := room.take(MIB)) is None:
            with run.attempt(1).train_log.open("ab") as log:
                log.write(b"x" * MIB)
            written[run] += MIB
            if written[run] == 10 * MIB:
                break
    assert refusal == Refusal("root", 16 * MIB)
    share = 4 * MIB  # that each process may have reserved before
    assert 16 * MIB <= sum(written.values()) <= 16 * MIB + share


def test_the_disk_keeps_its_margin(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", 20) as disk:
        limit(disk, margin=4 * MIB)
        room = room_of(attached(disk, "one"))
        fits = free_bytes(disk) - 4 * MIB
        assert room.lacks(fits) is None
        assert room.lacks(fits + 1) == Refusal("disk", 4 * MIB)
        (disk / "filler").write_bytes(bytes(fits))
        assert room.take(4096) == Refusal("disk", 4 * MIB)


@pytest.mark.parametrize("text", ["", "[]", '{"source_gib": "much"}', '{"run_gib": 1e400}'])
def test_limits_that_cannot_be_read_are_the_usual_ones(tmp_path: Path, text: str) -> None:
    (tmp_path / "limits.json").write_text(text)
    assert bounds_of(tmp_path) == WriteBounds()


def test_the_margin_grows_with_the_disk_and_leaves_small_ones_usable() -> None:
    bounds = WriteBounds()
    assert bounds.margin_of(4096 * GIB) == 4096 * GIB // 100
    assert bounds.margin_of(20 * GIB) == 512 * MIB
    assert bounds.margin_of(64 * MIB) == int(6.4 * MIB)
