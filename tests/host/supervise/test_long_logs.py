"""Logs that a program writes itself, cut in the middle once they are too long."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from support.attack.small_disk import allocated_bytes, small_disk
from support.core.journal_records import started
from support.host.attached_folder import AttachedFolder, limit
from support.host.scripted_processes import Box, Life
from support.runs.watched_run import codes, lived, recorded

from trainer_runtime.core.files.listing import is_never_fetched
from trainer_runtime.host.files.layout import AttemptFolder, RunFolder
from trainer_runtime.host.supervise.long_logs import LongLogs

pytestmark = pytest.mark.attack

MIB = 1 << 20
MOST = 16 * MIB
LINE = b"it prints and prints, %09d\n"


@pytest.fixture
def attempt(tmp_path: Path) -> AttemptFolder:
    limit(tmp_path, source=MOST)
    attempt = RunFolder(tmp_path / "runs" / "one").attempt(1)
    attempt.ranks.mkdir(parents=True)
    return attempt


Written = list[tuple[str, Mapping[str, object]]]


@pytest.fixture
def written() -> Written:
    return []


def poller(attempt: AttemptFolder, written: Written) -> Callable[[], None]:
    times = iter(range(10, 10_000, 10))
    logs = LongLogs(
        RunFolder(attempt.root.parents[1]),
        lambda: float(next(times)),
        lambda kind, fields: written.append((kind, fields)),
    )
    return lambda: logs.poll(1)


def prints(path: Path, size: int) -> None:
    with path.open("ab") as file:
        begin = file.seek(0, os.SEEK_CUR) // len(LINE % 0)
        file.write(b"".join(LINE % n for n in range(begin, begin + size // len(LINE % 0))))


@pytest.mark.parametrize("name", ["train.log", "setup.log", "ranks/3.log"])
def test_a_program_that_prints_without_end_keeps_a_beginning_and_an_end(
    attempt: AttemptFolder, written: Written, name: str
) -> None:
    poll, log = poller(attempt, written), attempt.root / name
    for _ in range(8):
        prints(log, 6 * MIB)
        poll()
        assert allocated_bytes(attempt.root) <= MOST
    data = log.read_bytes()
    count = len(data) // len(LINE % 0)
    assert data.startswith(LINE % 0)
    assert data.endswith(LINE % (count - 1)) and len(data) == count * len(LINE % 0)
    assert data[-MOST // 2 :].count(b"\0") == 0
    (kind, fields), *more = written
    assert (kind, fields["what"], fields["limit"], more) == ("decision", "log_cut", MOST, [])


def test_a_cut_log_is_a_finding_of_the_run(tmp_path: Path) -> None:
    limit(tmp_path, source=4 * MIB)
    printed = "it prints and prints\n" * (5 * MIB // 21)
    box = lived(Box(tmp_path / "runs" / "small-abc234", {}), Life((started(),), None, log=printed))
    supervisor = box.supervisor()
    box.tick(supervisor, "finding")
    assert codes(box) == [(1, "log_cut")]
    assert box.run.attempt(1).train_log.stat().st_blocks * 512 <= 4 * MIB
    supervisor.close()
    again = box.supervisor()  # which reports what it does itself once more
    for _ in range(5):
        again.tick()
        box.now += 1.0
    again.close()
    assert codes(box) == [(1, "log_cut")] and not recorded(box, "finding_closed")


def test_a_log_of_usual_length_is_left_alone(attempt: AttemptFolder, written: Written) -> None:
    prints(attempt.train_log, MOST - MIB)
    before = attempt.train_log.read_bytes()
    poller(attempt, written)()
    assert attempt.train_log.read_bytes() == before and written == []


@pytest.mark.long
@pytest.mark.slow
def test_what_a_pane_prints_without_end_is_copied_once_and_freed(tmp_path: Path) -> None:
    limit(tmp_path, source=256 * MIB)
    spool = tmp_path / "runs" / "watched-abc234" / "attempts" / "1" / "source.log"
    watched = AttachedFolder(tmp_path, spool)
    poll = poller(watched.attempt, [])
    for _ in range(2):
        prints(spool, 80 * MIB)
        while len(watched.copy if watched.attempt.train_log.exists() else b"") < (
            spool.stat().st_size
        ):
            watched.follow()
        poll()
        assert spool.stat().st_blocks * 512 <= 128 * MIB
    count = spool.stat().st_size // len(LINE % 0)
    assert watched.copy == b"".join(LINE % n for n in range(count))


def test_a_pane_is_emptied_where_the_disk_has_no_holes(tmp_path: Path) -> None:
    def unsupported(*_: int) -> None:
        raise OSError(errno.EOPNOTSUPP, "no holes")

    limit(tmp_path, source=4 * MIB)
    spool = tmp_path / "runs" / "watched-abc234" / "attempts" / "1" / "source.log"
    watched = AttachedFolder(tmp_path, spool)
    prints(spool, 8 * MIB)
    LongLogs(watched.run, lambda: 1.0, lambda *_: None, unsupported).poll(1)
    assert spool.stat().st_size == 0


@pytest.mark.parametrize("margin_gib", [0, 1])
def test_a_log_that_can_not_be_cut_is_a_finding_and_is_emptied_below_the_margin(
    tmp_path: Path, written: Written, margin_gib: int
) -> None:
    with small_disk(tmp_path / "disk", 0, "ramfs") as root:  # it has no holes
        (root / "limits.json").write_text(
            json.dumps({"source_gib": 4 * MIB / 2**30, "margin_gib": margin_gib})
        )
        attempt = RunFolder(root / "runs" / "one").attempt(1)
        attempt.ranks.mkdir(parents=True)
        prints(attempt.train_log, 6 * MIB)
        before = attempt.train_log.read_bytes()
        with attempt.train_log.open("ab") as program:
            poller(attempt, written)()
            program.write(b"more\n")
        (_, fields), *more = written
        assert (fields["bytes"], more) == (len(before), [])
        if margin_gib == 0:
            assert fields["what"] == "log_not_cut"
            assert attempt.train_log.read_bytes() == before + b"more\n"
        else:
            assert fields["what"] == "log_cut"
            assert attempt.train_log.read_bytes() == b"more\n"
            kept = [attempt.root / f"train.log.{end}" for end in ("beginning", "newest")]
            assert before.startswith(kept[0].read_bytes()) and kept[0].stat().st_size
            assert before.endswith(kept[1].read_bytes()) and kept[1].stat().st_size
            assert all(is_never_fetched(f"attempts/1/{path.name}") for path in kept)
