"""A foreign log copied: every byte once, whatever happens to the log or to the copying process."""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from trainer_runtime.host.attach.log_copy import LogCopy

LINES = [b"iter %d: loss %.4f, time 50.00ms\n" % (n, 4 - n / 1000) for n in range(4000)]


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "train.log"


@pytest.fixture
def warnings() -> list[str]:
    return []


Opener = Callable[..., LogCopy]


@pytest.fixture
def opened(tmp_path: Path, log: Path, warnings: list[str]) -> Opener:
    def make(*earlier: Path, begin: int = 0) -> LogCopy:
        folder = tmp_path / "copied"
        folder.mkdir(exist_ok=True)
        parts = [*earlier, log]
        return LogCopy(
            folder / "copy", folder / "source.jsonl", parts, begin, lambda: 1.0, warnings.append
        )

    return make


def copied(tmp_path: Path) -> bytes:
    return (tmp_path / "copied" / "copy").read_bytes()


def drain(copy: LogCopy) -> None:
    while copy.advance():
        pass


def append(path: Path, *lines: bytes) -> None:
    with path.open("ab") as file:
        file.write(b"".join(lines))


def test_a_growing_log_is_copied_as_it_is(tmp_path: Path, log: Path, opened: Opener) -> None:
    copy = opened()
    assert copy.advance() == 0  # it isn't there yet
    for line in LINES:
        append(log, line[:7])
        drain(copy)
        append(log, line[7:])
    drain(copy)
    assert copied(tmp_path) == b"".join(LINES)


def test_a_copy_resumes_where_a_kill_left_it(
    tmp_path: Path, log: Path, opened: Opener, warnings: list[str]
) -> None:
    chosen = random.Random(3)
    whole = b"".join(LINES)
    for end in sorted(chosen.sample(range(len(whole)), 40)):
        log.write_bytes(whole[:end])
        copy = opened()
        drain(copy)
        copy.close()
        # Of what was written last only a part may have come to the copy.
        left = chosen.randrange(max(0, end - 5000), end + 1)
        os.truncate(tmp_path / "copied" / "copy", left)
    log.write_bytes(whole)
    drain(opened())
    assert copied(tmp_path) == whole
    assert warnings == []


@pytest.mark.parametrize("cut", ["to nothing", "rewritten longer", "replaced"])
def test_a_replaced_log_is_reported_and_followed_again(
    tmp_path: Path, log: Path, opened: Opener, warnings: list[str], cut: str
) -> None:
    append(log, *LINES[:100], b"iter 100: lo")
    copy = opened()
    drain(copy)
    before = copied(tmp_path)
    if cut == "replaced":
        log.unlink()
        drain(copy)
    if cut == "to nothing":
        os.truncate(log, 0)
        drain(copy)
    log.write_bytes(b"another training\n" * 500)
    drain(copy)
    drain(copy)
    assert copied(tmp_path) == before + b"\n" + b"another training\n" * 500
    assert len(warnings) == 1 and "100" not in warnings[0]
    copy.close()
    drain(opened())
    assert copied(tmp_path) == before + b"\n" + b"another training\n" * 500


def test_a_log_that_was_rotated_is_read_to_its_end_first(
    tmp_path: Path, log: Path, opened: Opener
) -> None:
    append(log, *LINES[:100])
    copy = opened()
    drain(copy)
    copy.close()
    append(log, *LINES[100:200])
    log.rename(log.with_name("train.log.1"))
    append(log, *LINES[200:300])
    copy = opened()
    for _ in range(4):
        drain(copy)
    assert copied(tmp_path) == b"".join(LINES[:300])


def test_a_kill_between_note_and_bytes_of_a_new_log_changes_nothing(
    tmp_path: Path, log: Path, opened: Opener
) -> None:
    append(log, *LINES[:10], b"torn")
    copy = opened()
    drain(copy)
    shutil.copy(tmp_path / "copied" / "copy", tmp_path / "before")
    log.write_bytes(b"new\n")
    drain(copy)
    copy.close()
    whole = copied(tmp_path)
    for left in range(len((tmp_path / "before").read_bytes()), len(whole) + 1):
        (tmp_path / "copied" / "copy").write_bytes(whole[:left])
        copy = opened()
        drain(copy)
        copy.close()
        assert copied(tmp_path) == whole == b"".join(LINES[:10]) + b"torn\nnew\n"


def test_history_comes_before_what_follows(tmp_path: Path, log: Path, opened: Opener) -> None:
    history = tmp_path / "history.log"
    history.write_bytes(b"".join(LINES[:5]) + LINES[5][:9])
    append(log, LINES[5][9:], *LINES[6:20])
    drain(opened(history))
    assert copied(tmp_path) == b"".join(LINES[:20])


def test_a_copy_from_the_end_begins_there(tmp_path: Path, log: Path, opened: Opener) -> None:
    append(log, *LINES[:50])
    copy = opened(begin=log.stat().st_size)
    drain(copy)
    append(log, *LINES[50:60])
    drain(copy)
    assert copied(tmp_path) == b"".join(LINES[50:60])


def test_a_pipe_in_the_place_of_the_log_holds_up_nothing(
    tmp_path: Path, log: Path, opened: Opener
) -> None:
    """Also where a further supervisor takes up what it was copied from."""
    append(log, *LINES[:10])
    drain(opened())
    log.unlink()
    os.mkfifo(log)
    assert opened().advance() == 0
    log.unlink()
    append(log, *LINES[10:20])
    drain(opened())
    assert copied(tmp_path) == b"".join(LINES[:20])
