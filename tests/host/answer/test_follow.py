"""The follower on the host, asked through pipes as the client asks it."""

from __future__ import annotations

import json
import os
import random
import resource
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from support.runs.running_run import wait_until

REPOSITORY = Path(__file__).parents[3]
EVENTS, LOG, JOURNAL = "attempts/1/events.jsonl", "attempts/1/train.log", "supervisor.jsonl"
SEED = int(os.environ.get("TRAINMASTER_FAULT_SEED", str(random.SystemRandom().randrange(10**6))))


class Box:
    """`trainer_runtime follow` in a process, and what it has sent so far."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.process = subprocess.Popen(
            [sys.executable, "-m", "trainer_runtime", "follow"],
            cwd=REPOSITORY,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        self.copies: dict[tuple[str, str], bytes] = {}
        self.put_aside: dict[tuple[str, str], list[bytes]] = {}
        self.inodes: dict[tuple[str, str], int] = {}
        self.frames: list[dict[str, Any]] = []
        self._scans = 0

    def write(self, run: str, name: str, data: bytes) -> None:
        path = self.root / run / name
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("ab") as file:
            file.write(data)

    def add(self, *runs: str, have: Mapping[str, Any] | None = None) -> dict[str, Any]:
        return {run: {"folder": str(self.root / run), "have": have or {}} for run in runs}

    def scan(self, **request: Any) -> bool:
        """One scan; whether there is more."""
        assert self.process.stdin is not None and self.process.stdout is not None
        self._scans += 1
        self.process.stdin.write(json.dumps({"scan": self._scans, **request}).encode() + b"\n")
        self.process.stdin.flush()
        self.frames = []
        while "scanned" not in (line := json.loads(self.process.stdout.readline())):
            for header in line["frames"]:
                self.frames.append(header)
                self._take(header, self.process.stdout.read(header["n"]))
        assert line["scanned"] == self._scans
        return bool(line["more"])

    def read_all(self, **request: Any) -> None:
        """Scan until there is no more."""
        for _ in range(1000):
            if not self.scan(**request):
                return
            request = {key: request[key] for key in request if key != "add"}
        raise AssertionError("there is always more")

    def open_files(self) -> set[str]:
        """What it has open below its runs' folders."""
        folder = Path(f"/proc/{self.process.pid}/fd")
        found = {os.readlink(entry) for entry in folder.iterdir()}
        return {
            os.path.relpath(name, self.root) for name in found if name.startswith(f"{self.root}/")
        }

    def sizes(self) -> dict[str, int]:
        """How much of the last scan's bytes was whose."""
        sent: dict[str, int] = {}
        for frame in self.frames:
            sent[frame["run"]] = sent.get(frame["run"], 0) + frame["n"]
        return sent

    def close(self) -> int:
        _, errors = self.process.communicate(timeout=60)
        assert errors == b""
        return self.process.returncode

    def _take(self, header: dict[str, Any], data: bytes) -> None:
        key = header["run"], header["file"]
        if "mtime_ns" in header:
            self.copies[key] = data
            return
        if "inode" in header:
            self.inodes[key] = header["inode"]
        if "reset" in header:
            self.put_aside.setdefault(key, []).append(self.copies.pop(key, b""))
        assert header["at"] == len(self.copies.get(key, b""))
        self.copies[key] = self.copies.get(key, b"") + data


@pytest.fixture
def box(tmp_path: Path) -> Iterator[Box]:
    opened = Box(tmp_path)
    yield opened
    opened.process.kill()
    opened.process.communicate()


def test_each_byte_is_sent_once_as_files_grow(box: Box) -> None:
    box.write("a", EVENTS, b"one\n")
    box.scan(add=box.add("a"))
    assert box.copies["a", EVENTS] == b"one\n"
    assert not box.scan() and box.frames == []
    box.write("a", EVENTS, b"tw")
    box.scan()
    box.write("a", EVENTS, b"o\n\xff\xfe\r")
    box.write("a", JOURNAL, b"{}\n")
    box.scan()
    assert box.copies["a", EVENTS] == b"one\ntwo\n\xff\xfe\r"
    assert box.copies["a", JOURNAL] == b"{}\n"


def test_the_journal_is_sent_after_the_files_whose_end_it_may_record(box: Box) -> None:
    for name in (JOURNAL, LOG, EVENTS):
        box.write("a", name, b"x" * 100)
    box.scan(add=box.add("a"))
    sent = [frame["file"] for frame in box.frames if frame["n"]]
    assert sent == [EVENTS, LOG, JOURNAL]


def test_the_journal_waits_for_events_that_do_not_fit_into_a_scan(box: Box) -> None:
    box.write("a", EVENTS, b"x" * 200_000)
    box.write("a", JOURNAL, b"ended\n")
    assert box.scan(add=box.add("a"), limit=65536)
    while (("a", JOURNAL)) not in box.copies:
        whole = len(box.copies["a", EVENTS]) == 200_000
        box.scan(limit=65536)
        assert whole or len(box.copies["a", EVENTS]) == 200_000 or ("a", JOURNAL) not in box.copies
    assert box.copies["a", JOURNAL] == b"ended\n"


def test_reading_resumes_where_the_copy_ends(box: Box) -> None:
    box.write("a", LOG, b"0123456789")
    inode = (box.root / "a" / LOG).stat().st_ino
    have = {LOG: [4, inode, "0123"]}
    box.copies["a", LOG] = b"0123"
    box.scan(add=box.add("a", have=have))
    assert box.copies["a", LOG] == b"0123456789"
    assert "inode" not in box.frames[0]


def test_a_truncated_file_is_reset(box: Box) -> None:
    box.write("a", LOG, b"old and long\n")
    box.scan(add=box.add("a"))
    os.truncate(box.root / "a" / LOG, 0)
    box.scan()
    assert (box.copies["a", LOG], box.put_aside["a", LOG]) == (b"", [b"old and long\n"])
    box.write("a", LOG, b"new\n")
    box.scan()
    assert box.copies["a", LOG] == b"new\n"


def test_a_file_that_has_regrown_is_reset(box: Box) -> None:
    box.write("a", LOG, b"old\n")
    box.scan(add=box.add("a"))
    (box.root / "a" / LOG).write_bytes(b"other and longer\n")
    box.scan()
    assert box.copies["a", LOG] == b"other and longer\n"
    assert box.put_aside["a", LOG] == [b"old\n"]


def test_a_file_that_has_regrown_to_its_old_length_is_reset(box: Box) -> None:
    box.write("a", LOG, b"old\n")
    box.scan(add=box.add("a"))
    (box.root / "a" / LOG).write_bytes(b"new\n")
    os.utime(box.root / "a" / LOG, ns=(1, 1))
    box.scan()
    assert (box.copies["a", LOG], box.put_aside["a", LOG]) == (b"new\n", [b"old\n"])


def test_a_file_regrown_between_scans_is_known_by_its_last_bytes(box: Box) -> None:
    box.write("a", LOG, b"other and longer\n")
    box.copies["a", LOG] = b"old\n"
    box.scan(add=box.add("a", have={LOG: [4, None, "old\n"]}))
    assert box.copies["a", LOG] == b"other and longer\n"


def test_a_rotated_file_is_read_to_its_end_before_the_new_one(box: Box) -> None:
    path = box.root / "a" / LOG
    box.write("a", LOG, b"one\n")
    box.scan(add=box.add("a"))
    box.write("a", LOG, b"unread\n")
    path.rename(path.with_name("train.log.1"))
    box.write("a", LOG, b"new\n")
    box.read_all()
    assert box.put_aside["a", LOG] == [b"one\nunread\n"]
    assert box.copies["a", LOG] == b"new\n"


def test_a_copied_and_truncated_file_is_read_to_its_end(box: Box) -> None:
    path = box.root / "a" / LOG
    box.write("a", LOG, b"one\n")
    box.scan(add=box.add("a"))
    box.write("a", LOG, b"unread\n")
    path.with_name("train.log.1").write_bytes(path.read_bytes())
    os.truncate(path, 0)
    box.write("a", LOG, b"new\n")
    box.read_all()
    assert box.put_aside["a", LOG] == [b"one\nunread\n"]
    assert box.copies["a", LOG] == b"new\n"


def test_a_replaced_file_is_recognised_after_a_pause(box: Box) -> None:
    box.write("a", LOG, b"the same beginning\n")
    inode = (box.root / "a" / LOG).stat().st_ino
    other = box.root / "a" / "other"
    other.write_bytes(b"the same beginning\nand more\n")
    os.replace(other, box.root / "a" / LOG)
    box.copies["a", LOG] = b"the same beginning\n"
    have = {LOG: [19, inode, "the same beginning\n"]}
    box.scan(add=box.add("a", have=have))
    assert box.put_aside["a", LOG] == [b"the same beginning\n"]
    assert box.copies["a", LOG] == b"the same beginning\nand more\n"
    assert box.inodes["a", LOG] == (box.root / "a" / LOG).stat().st_ino


def test_symbolic_links_are_not_followed(box: Box, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    (secret / "2").mkdir(parents=True)
    (secret / "2" / "train.log").write_bytes(b"secret\n")
    (tmp_path / "a" / "attempts" / "1").mkdir(parents=True)
    (tmp_path / "a" / LOG).symlink_to(secret / "2" / "train.log")
    (tmp_path / "a" / "state.json").symlink_to(secret / "2" / "train.log")
    (tmp_path / "a" / "attempts" / "2").symlink_to(secret / "2")
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "attempts").symlink_to(secret)
    box.write("a", EVENTS, b"one\n")
    box.scan(add=box.add("a", "b"))
    assert box.copies == {("a", EVENTS): b"one\n"}


def test_replaced_files_are_sent_where_they_differ(box: Box) -> None:
    box.write("a", "attempts/1/config.json", b"{}")
    box.write("a", "state.json", b"old")
    status = (box.root / "a" / "state.json").stat()
    have = {"state.json": [status.st_size, status.st_mtime_ns]}
    box.scan(add=box.add("a", have=have))
    assert box.copies == {("a", "attempts/1/config.json"): b"{}"}
    (box.root / "a" / "state.json").write_bytes(b"new")
    os.utime(box.root / "a" / "state.json", ns=(1, 1))
    box.scan(over=["a"])
    assert box.copies["a", "state.json"] == b"new"


def test_attempts_that_come_later_are_found_and_earlier_ones_read_to_their_end(box: Box) -> None:
    box.write("a", LOG, b"first\n")
    box.scan(add=box.add("a"))
    box.write("a", "attempts/2/train.log", b"second\n")
    box.write("a", LOG, b"last words\n")
    box.write("a", JOURNAL, b"attempt 2\n")
    box.scan()
    assert box.copies["a", LOG] == b"first\nlast words\n"
    assert box.copies["a", "attempts/2/train.log"] == b"second\n"


def test_everybody_gets_a_share_of_a_scan_beside_a_huge_log(box: Box) -> None:
    names = [f"run-{number}" for number in range(20)]
    box.write("huge", LOG, b"x" * (3 << 20))
    for name in names:
        box.write(name, LOG, b"small\n")
    assert box.scan(add=box.add("huge", *names), limit=1 << 20)
    assert set(names) < box.sizes().keys()
    for name in names:
        box.write(name, LOG, b"more\n")
    assert box.scan(limit=1 << 20)
    assert set(names) < box.sizes().keys()
    box.read_all()
    assert len(box.copies["huge", LOG]) == 3 << 20


def test_a_scan_is_bounded_and_nobody_is_left_out_for_long(box: Box) -> None:
    names = [f"run-{number}" for number in range(50)]
    for name in names:
        box.write(name, LOG, os.urandom(100_000))
    more, scans = box.scan(add=box.add(*names), limit=128 << 10), 1
    first_turn: dict[str, int] = {}
    while more:
        assert sum(box.sizes().values()) <= (128 << 10) + 1
        first_turn.update({name: scans for name in box.sizes() if name not in first_turn})
        more, scans = box.scan(limit=128 << 10), scans + 1
    assert set(first_turn) == set(names) and max(first_turn.values()) <= 8
    for name in names:
        assert box.copies[name, LOG] == (box.root / name / LOG).read_bytes()


def test_runs_that_are_dropped_are_left_alone(box: Box) -> None:
    box.write("a", LOG, b"one\n")
    box.scan(add=box.add("a"))
    box.write("a", LOG, b"two\n")
    box.scan(drop=["a"])
    assert box.frames == []
    box.copies["a", LOG] = b"one\n"
    box.scan(add=box.add("a", have={LOG: [4, None, "one\n"]}))
    assert box.copies["a", LOG] == b"one\ntwo\n"


def test_nothing_stays_open_between_scans(box: Box) -> None:
    for name in (EVENTS, LOG, JOURNAL):
        box.write("a", name, b"one\n")
    box.scan(add=box.add("a"))
    assert box.open_files() == set()


def test_runs_beyond_what_a_process_may_have_open_are_followed_too(box: Box) -> None:
    resource.prlimit(box.process.pid, resource.RLIMIT_NOFILE, (40, 40))
    runs = [f"run-{number}" for number in range(50)]
    request: dict[str, Any] = {"add": box.add(*runs)}
    for beat in range(3):
        for run in runs:
            for name in (EVENTS, LOG, JOURNAL):
                box.write(run, name, b"line %d\n" % beat)
        box.scan(**request)
        request = {}
    for run in runs:
        for name in (EVENTS, LOG, JOURNAL):
            assert box.copies[run, name] == b"line 0\nline 1\nline 2\n"


def test_it_ends_with_its_standard_input(box: Box) -> None:
    box.write("a", LOG, b"one\n")
    box.scan(add=box.add("a"))
    assert box.close() == 0


def test_it_ends_when_nobody_reads_its_answers(box: Box) -> None:
    box.write("a", LOG, b"x" * (1 << 20))
    assert box.process.stdin is not None and box.process.stdout is not None
    box.process.stdin.write(json.dumps({"scan": 1, "add": box.add("a")}).encode() + b"\n")
    box.process.stdin.flush()
    box.process.stdout.close()
    wait_until(lambda: box.process.poll() is not None, "its end")
    assert box.process.returncode == 0


def test_whatever_happens_to_files_their_copies_equal_them_in_the_end(box: Box) -> None:
    """Random appends, truncations, replacements, rotations and torn writes, scanned in between."""
    print(f"seed {SEED}")
    chosen = random.Random(SEED)
    runs = [f"run-{number}" for number in range(6)]
    written: dict[tuple[str, str], list[bytearray]] = {}
    for run in runs:
        box.write(run, LOG, b"")
    request: dict[str, Any] = {"add": box.add(*runs)}
    for _ in range(400):
        run, name = chosen.choice(runs), chosen.choice((EVENTS, LOG, JOURNAL))
        generations = written.setdefault((run, name), [bytearray()])
        _happen(chosen, box, run, name, generations)
        if chosen.random() < 0.5:
            box.scan(limit=chosen.choice((16 << 10, 1 << 20)), **request)
            request = {}
    box.read_all(over=runs)
    for (run, name), generations in written.items():
        assert box.copies.get((run, name), b"") == bytes(generations[-1]), (run, name)
        pieces = box.put_aside.get((run, name), [])
        known = [bytes(generation) for generation in generations[:-1]]
        assert all(any(old.startswith(piece) for old in known) for piece in pieces), (run, name)


def _happen(
    chosen: random.Random, box: Box, run: str, name: str, generations: list[bytearray]
) -> None:
    path = box.root / run / name
    what = chosen.random()
    data = chosen.randbytes(chosen.choice((1, 7, 100, 5000, 60_000)))
    if what < 0.88 or not path.exists():
        box.write(run, name, data)
        generations[-1] += data
        return
    generations.append(bytearray(data))
    if what < 0.91:
        os.truncate(path, 0)
        box.write(run, name, data)
    elif what < 0.94:
        other = path.with_name("other")
        other.write_bytes(data)
        os.replace(other, path)
    else:
        path.rename(path.with_name(f"{path.name}.{len(generations)}"))
        path.write_bytes(data)
