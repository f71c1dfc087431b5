from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
import tracemalloc
from pathlib import Path

import pytest
from support.runs.running_run import wait_until

from trainer_runtime.core.files.durable import try_lock, write_atomic
from trainer_runtime.core.protocol.lines import ProtocolError, decode
from trainer_runtime.host.files.files import AppendedLog, LineReader, read_json, write_json

REPOSITORY = Path(__file__).parents[3]
_HOLDER = """
import sys, time
from pathlib import Path
from trainer_runtime.core.files.durable import try_lock
print(try_lock(Path(sys.argv[1])) is not None, flush=True)
sys.stdin.read()
"""


def seqs(path: Path) -> list[int]:
    """The sequence numbers of the lines that are events."""
    found = []
    for line in path.read_bytes().splitlines():
        try:
            found.append(decode(line).seq)
        except ProtocolError:
            continue
    return found


def test_a_file_is_replaced_wholly_and_nothing_is_left_beside_it(tmp_path: Path) -> None:
    path = tmp_path / "state.json"
    write_json(path, {"loss": 2.5, "name": "ü"})
    write_atomic(path, b"new")
    assert path.read_bytes() == b"new"
    assert os.listdir(tmp_path) == ["state.json"]


def test_a_write_that_fails_leaves_the_old_file_and_no_rest(tmp_path: Path) -> None:
    path = tmp_path / "folder"
    path.mkdir()
    (path / "file").touch()
    with pytest.raises(OSError):
        write_atomic(path, b"a folder stands there")
    assert os.listdir(tmp_path) == ["folder"]


@pytest.mark.parametrize("data", [None, b"", b"{", b"[1]", b"\xff\xfe", b"null"])
def test_what_is_no_object_reads_as_nothing(tmp_path: Path, data: bytes | None) -> None:
    path = tmp_path / "state.json"
    if data is not None:
        path.write_bytes(data)
    assert read_json(path) is None


def test_a_lock_has_one_holder_and_is_free_once_that_is_killed(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    holder = subprocess.Popen(
        [sys.executable, "-c", _HOLDER, str(path)],
        cwd=REPOSITORY,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert holder.stdout is not None and holder.stdout.readline() == b"True\n"
    assert try_lock(path) is None
    holder.send_signal(signal.SIGKILL)
    holder.communicate()
    lock = wait_until(lambda: try_lock(path), "the lock is free")
    assert try_lock(path) is None
    os.close(lock)
    os.close(wait_until(lambda: try_lock(path), "the lock is free"))


def test_lines_are_numbered_on_from_where_the_log_ends(tmp_path: Path) -> None:
    path = tmp_path / "log"
    for first in (0, 2):
        log = AppendedLog(path, first)
        log.append(1.0, "metric", {"step": first})
        log.append(1.0, "metric", {"step": first + 1})
        log.close()
    assert seqs(path) == [0, 1, 2, 3]


@pytest.mark.parametrize("missing_bytes", range(1, 40))
def test_a_torn_line_never_counts_and_spoils_no_other(tmp_path: Path, missing_bytes: int) -> None:
    path = tmp_path / "log"
    log = AppendedLog(path, 0)
    log.append(1.0, "started", {"name": "ü漢"})
    log.append(1.0, "metric", {"step": 1, "values": {"loss": 2.5}, "name": "ü漢"})
    log.close()
    os.truncate(path, path.stat().st_size - missing_bytes)
    again = AppendedLog(path, 1)
    again.append(2.0, "metric", {"step": 2})
    again.append(2.0, "metric", {"step": 3})
    again.close()
    assert seqs(path) == [0, 1, 2]


def test_a_line_that_the_disk_took_in_part_is_written_again_and_counts_once(tmp_path: Path) -> None:
    path = tmp_path / "log"
    log = AppendedLog(path, 0)
    first = log.append(1.0, "metric", {"step": 1})
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        for room in (len(first) - 1, 0, 7):  # the first time, nothing but the line's end is missing
            full = path.stat().st_size + room
            resource.setrlimit(resource.RLIMIT_FSIZE, (full, before[1]))
            with pytest.raises(OSError):
                log.append(1.0, "metric", {"step": 2})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)
    log.append(1.0, "metric", {"step": 2})
    log.append(1.0, "metric", {"step": 3})
    log.close()
    assert seqs(path) == [0, 1, 2]


def test_a_reader_gives_each_whole_line_once(tmp_path: Path) -> None:
    path = tmp_path / "log"
    reader = LineReader(path)
    assert list(reader.read()) == []
    found = []
    for part in (b"on", b"e\ntw", b"", b"o\n\nthree\n", b"fo"):
        with path.open("ab") as file:
            file.write(part)
        found += reader.read()
    assert found == [b"one", b"two", b"three"]


def test_a_line_that_is_too_long_is_left_out_in_bounded_memory(tmp_path: Path) -> None:
    path, long = tmp_path / "lines", b"x" * (24 << 20)
    path.write_bytes(b"one\n" + long)
    reader = LineReader(path)
    tracemalloc.start()
    try:
        assert list(reader.read()) == [b"one"]
        with path.open("ab") as file:
            file.write(b"its end\ntwo\nthr")
        assert list(reader.read()) == [b"two"]
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 8 << 20
    assert reader.offset == path.stat().st_size - len(b"thr")
    from_within = LineReader(path, begin=100)  # as after a restart
    assert list(from_within.read())[-1] == b"two"
