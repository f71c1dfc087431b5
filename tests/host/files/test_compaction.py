"""Appended files of which old regions are compressed: their readers notice nothing."""

from __future__ import annotations

import errno
import os
import random
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from trainer_runtime.core.files.compacted import REGION_BYTES, archive_of
from trainer_runtime.core.protocol.lines import encode
from trainer_runtime.host.files.compacted import read_at
from trainer_runtime.host.files.compaction import Compaction, punch_hole
from trainer_runtime.host.files.files import LineReader

KILLS = int(os.environ.get("TRAINMASTER_FAULT_KILLS", "4"))
SEED = int(os.environ.get("TRAINMASTER_FAULT_SEED", str(random.SystemRandom().randrange(10**6))))
_COMPACTING = """
import sys
from pathlib import Path
from trainer_runtime.host.files.compaction import Compaction
print("ready", flush=True)
while Compaction(Path(sys.argv[1]), 0).step():
    pass
"""


@pytest.fixture(scope="module")
def whole() -> bytes:
    """Three regions and a little more, of lines that are all different."""
    note = "x" * 900
    line = len(encode(10_000, 1e9, "metric", {"step": 10_000, "note": note}))
    count = 3 * REGION_BYTES // line + 20
    return b"".join(
        encode(10_000 + at, 1e9, "metric", {"step": at, "note": note}) for at in range(count)
    )


@pytest.fixture
def file(tmp_path: Path, whole: bytes) -> Path:
    path = tmp_path / "events.jsonl"
    path.write_bytes(whole)
    return path


def read(path: Path, offset: int = 0, length: int = 1 << 30) -> bytes:
    with path.open("rb") as opened:
        return read_at(opened.fileno(), str(path), offset, length)


def stored_bytes(path: Path) -> int:
    return path.stat().st_blocks * 512


def to_the_end(compaction: Compaction) -> int:
    """How many steps there were."""
    steps = 0
    while compaction.step():
        steps += 1
    return steps


def test_old_regions_are_freed_and_every_byte_is_read_as_before(file: Path, whole: bytes) -> None:
    made = random.Random(SEED)
    assert to_the_end(Compaction(file, 0)) == 3
    assert file.stat().st_size == len(whole)
    assert stored_bytes(file) < REGION_BYTES
    assert read(file) == whole
    for _ in range(50):
        begin, length = made.randrange(len(whole)), made.randrange(3 << 20)
        assert read(file, begin, length) == whole[begin : begin + length]
    assert list(LineReader(file).read()) == whole.splitlines()


def test_the_newest_bytes_stay_as_they_are(file: Path, whole: bytes) -> None:
    assert to_the_end(Compaction(file, 2 * REGION_BYTES)) == 1
    assert file.read_bytes()[REGION_BYTES:] == whole[REGION_BYTES:]


def test_the_next_process_starts_where_the_one_before_ended(file: Path) -> None:
    to_the_end(Compaction(file, 0))
    archive = Path(archive_of(str(file), 0))
    before = archive.stat().st_mtime_ns
    with file.open("ab") as appended:
        appended.write(b"x" * REGION_BYTES)
    assert to_the_end(Compaction(file, 0)) == 1
    assert archive.stat().st_mtime_ns == before


@pytest.mark.parametrize("number", [errno.EOPNOTSUPP, errno.ENOSYS, errno.EPERM])
def test_a_file_is_left_alone_where_it_can_have_no_holes(file: Path, number: int) -> None:
    def refuse(*_: int) -> None:
        raise OSError(number, os.strerror(number))

    assert to_the_end(Compaction(file, 0, refuse)) == 0
    assert not Path(archive_of(str(file), 0)).parent.exists()


def test_a_region_that_a_power_cut_left_half_freed_is_whole(file: Path, whole: bytes) -> None:
    def half(descriptor: int, begin: int, length: int) -> None:
        punch_hole(descriptor, begin, length // 2)
        if begin < len(whole):
            raise OSError(errno.EIO, os.strerror(errno.EIO))

    with pytest.raises(OSError, match="Input/output"):
        Compaction(file, 0, half).step()
    assert read(file) == whole
    to_the_end(Compaction(file, 0))
    assert read(file) == whole
    assert stored_bytes(file) < REGION_BYTES


def test_an_archive_of_an_earlier_file_is_replaced(file: Path) -> None:
    to_the_end(Compaction(file, 0))
    changed = read(file).replace(b"metric", b"sample")
    file.write_bytes(changed)
    to_the_end(Compaction(file, 0))
    assert read(file) == changed


def test_a_damaged_archive_is_read_as_zeros_and_what_follows_as_it_is(
    file: Path, whole: bytes
) -> None:
    to_the_end(Compaction(file, 0))
    Path(archive_of(str(file), 0)).write_bytes(b"damaged")
    assert read(file) == bytes(REGION_BYTES) + whole[REGION_BYTES:]


def test_a_kill_at_any_moment_loses_nothing(file: Path, whole: bytes) -> None:
    print(f"TRAINMASTER_FAULT_SEED={SEED}")
    made, appended = random.Random(SEED), whole
    for number in range(KILLS):
        command = [sys.executable, "-c", _COMPACTING, str(file)]
        with subprocess.Popen(
            command, stdout=subprocess.PIPE, cwd=Path(__file__).parents[3]
        ) as one:
            assert one.stdout is not None and one.stdout.readline() == b"ready\n"
            more = encode(number, 1e9, "metric", {"step": number}) * 10_000
            with file.open("ab") as writer:
                writer.write(more)
            appended += more
            try:
                one.wait(made.uniform(0.0, 0.15))
            except subprocess.TimeoutExpired:
                one.send_signal(signal.SIGKILL)
        assert read(file) == appended
    to_the_end(Compaction(file, 0))
    assert read(file) == appended
    assert stored_bytes(file) < REGION_BYTES + (1 << 20)
    assert not list(Path(archive_of(str(file), 0)).parent.glob(".*"))
