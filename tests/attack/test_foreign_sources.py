"""Logs of others that are sparse, endless, or replaced all the time: what a host writes for them
stays within its bounds, and the disk keeps its margin, whatever they do."""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from support.attack.cases import attack_count, attack_random
from support.attack.small_disk import allocated_bytes, free_bytes, small_disk
from support.host.attached_folder import AttachedFolder, limit

from trainer_runtime.core.policy.write_bounds import Refusal
from trainer_runtime.host.attach.log_copy import LogCopy

pytestmark = pytest.mark.attack

MIB = 1 << 20
DISK_MIB, MARGIN = 48, 8 * MIB
# Between two readings of a run's files some events may come; files end in half a block.
SLACK = MIB
ROUNDS = 10

Change = Callable[[Path, random.Random], None]


def numbered(begin: int, count: int) -> bytes:
    steps = range(begin, begin + count)
    return b"".join(b"iter %d: loss %.4f, time 50.00ms\n" % (n, 4 - n / 1e6) for n in steps)


def endless(log: Path, chosen: random.Random) -> None:
    """Metrics without end."""
    begin = chosen.randrange(10**6)
    with log.open("ab") as file:
        file.write(numbered(begin, chosen.randrange(1, 15_000)))


def one_line(log: Path, chosen: random.Random) -> None:
    with log.open("ab") as file:
        file.write(bytes([chosen.randrange(32, 127)]) * chosen.randrange(1, 2 * MIB))


def sparse(log: Path, chosen: random.Random) -> None:
    """A hole of up to 2 TiB, then a line."""
    with log.open("ab") as file:
        file.truncate(file.seek(0, os.SEEK_CUR) + chosen.choice([1, 4096, MIB, 1 << 30, 1 << 41]))
        file.seek(0, os.SEEK_END)
        file.write(numbered(chosen.randrange(1000), 3))


def zeros(log: Path, chosen: random.Random) -> None:
    with log.open("ab") as file:
        file.write(bytes(chosen.randrange(1, 2 * MIB)))


def truncated(log: Path, chosen: random.Random) -> None:
    log.write_bytes(numbered(chosen.randrange(1000), chosen.randrange(8_000)))


def rotated(log: Path, chosen: random.Random) -> None:
    log.rename(log.with_name(f"log.{chosen.randrange(5)}"))
    log.write_bytes(numbered(chosen.randrange(1000), chosen.randrange(8_000)))


def many_keys(log: Path, chosen: random.Random) -> None:
    with log.open("ab") as file:
        for _ in range(chosen.randrange(150)):
            values = ", ".join(f'"k{chosen.randrange(10**9)}": 1.5' for _ in range(40))
            file.write(f'{{"step": {chosen.randrange(10**6)}, {values}}}\n'.encode())


def tiny_lines(log: Path, chosen: random.Random) -> None:
    """Of six bytes each, which become events of two hundred."""
    with log.open("ab") as file:
        file.write(b"".join(b"%d 0.%d\n" % (n, n % 10) for n in range(chosen.randrange(5_000))))


CHANGES: tuple[Change, ...] = (
    *(endless, one_line, sparse, zeros, truncated, rotated, many_keys, tiny_lines),
)


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    with small_disk(tmp_path / "disk", DISK_MIB) as folder:
        yield folder


@pytest.mark.parametrize("case", range(attack_count(8)))
def test_no_source_passes_the_bounds_of_its_host(case: int, tmp_path: Path, disk: Path) -> None:
    """One kind of change alone for the first cases, then mixtures."""
    chosen = attack_random(f"sources {case}")
    kinds = [CHANGES[case]] if case < len(CHANGES) else chosen.sample(CHANGES, 3)
    source, run = chosen.choice([1, 2, 100]) * MIB, chosen.choice([3, 6, 100]) * MIB
    limit(disk, source=source, run=run, margin=MARGIN)
    log = tmp_path / "log"
    log.write_bytes(numbered(0, 100))
    watched = AttachedFolder(disk, log)
    for number in range(ROUNDS):
        chosen.choice(kinds)(log, chosen)
        assert watched.follow(2).state == "running"
        assert watched.attempt.train_log.stat().st_size <= source
        assert allocated_bytes(watched.run.root) <= run + SLACK
        assert free_bytes(disk) >= MARGIN - SLACK / 4
        if number == ROUNDS // 2:
            watched.close()
            watched.restart()


def test_a_log_is_followed_exactly_once_a_full_disk_has_room(tmp_path: Path, disk: Path) -> None:
    limit(disk, margin=MARGIN)
    log = tmp_path / "log"
    log.write_bytes(numbered(0, 1000))
    watched = AttachedFolder(disk, log)
    watched.follow(2)
    filler = disk / "filler"
    filler.write_bytes(bytes(free_bytes(disk) - MARGIN))  # another program's
    for begin in range(1000, 5000, 1000):
        with log.open("ab") as file:
            file.write(numbered(begin, 1000))
        assert watched.follow(2).state == "running"
    assert watched.copy == numbered(0, 1000)
    assert free_bytes(disk) >= MARGIN - SLACK / 4
    assert [one["what"] for one in watched.decisions()] == ["source_not_copied"]
    filler.unlink()
    watched.follow(2)
    assert watched.copy == log.read_bytes() == numbered(0, 5000)
    assert [one["what"] for one in watched.decisions()] == ["source_not_copied", "source_copied"]


def test_of_a_sparse_log_of_2_tib_only_its_lines_are_copied(tmp_path: Path, disk: Path) -> None:
    log = tmp_path / "log"
    lines = [numbered(number, 1) for number in range(3)]
    with log.open("wb") as file:
        for number, line in enumerate(lines):
            file.seek(number << 40)
            file.write(line)
        file.truncate(1 << 41 | 1 << 40)
    watched = AttachedFolder(disk, log)
    watched.follow(3)
    assert [line for line in watched.copy.replace(b"\0", b"").splitlines(True) if line.strip()] == (
        lines
    )
    assert allocated_bytes(watched.run.root) < MIB
    assert watched.decisions() == []
    with log.open("r+b") as file:  # where the file ends in a hole, lines may come yet
        file.seek(len(lines[2]) + (2 << 40))
        file.write(b"iter 9: loss 1.0000, time 50.00ms\n")
    watched.follow(2)
    assert watched.copy.replace(b"\0", b"").endswith(b"iter 9: loss 1.0000, time 50.00ms\n")


def test_a_log_that_is_replaced_without_end_costs_a_bounded_record(tmp_path: Path) -> None:
    log, copied, journal = tmp_path / "log", tmp_path / "copy", tmp_path / "source.jsonl"
    copy = LogCopy(
        *(copied, journal, [log], 0, lambda: 1.0, lambda _: None),
        room=lambda _: None,
        most_replaced=50,
    )
    for number in range(200):
        log.unlink(missing_ok=True)
        log.write_bytes(numbered(number, 2))
        while copy.advance():
            pass
    assert copy.refusal == Refusal("replaced", 50)
    assert journal.read_bytes().count(b"\n") == 51
    assert copied.stat().st_size < 51 * len(numbered(0, 3))
    copy.close()
