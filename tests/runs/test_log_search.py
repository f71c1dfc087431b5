"""Searching a log block by block gives what searching it line by line gives, and ends in time."""

from __future__ import annotations

import os
import random
import tempfile
from pathlib import Path

import pytest
import regex
from support.runs.running_run import run_async

from trainer_runtime.core.protocol.text import shown
from trainmaster.calls.work import Work, working
from trainmaster.errors.errors import StateError
from trainmaster.runs.log.log_search import LogSearch
from trainmaster.runs.log.logs import read_log
from trainmaster.sync.workspace import Workspace

_SEED = int(os.environ.get("TRAINMASTER_FAULT_SEED", "7"))
_ROUNDS = int(os.environ.get("TRAINMASTER_FAULT_ROUNDS", "3"))
_PIECES = (
    *(b"loss", b"lo", b"ss", b"o", b"s", b"step ", b" ", b"\t", b"8 more", b"more characters"),
    *(b"\n", b"\n", b"\n", b"\r", b"\x1b[31m", b"\x1b[0m", b"\x1b]0;title\x07", b"\0", b"\x08"),
    *(
        b"\xe2\x80\x8b",
        b"\xe2\x96\x88",
        b"\xc2\x9b",
        b"\xff",
        b"\xe2",
        b"\xcd\x8f",
        b"\xe2\x80\x99",
    ),
    *(b"x" * 1999, b"y" * 3000, b"z" * 9_000),
)
# Words with a byte that occurs in few lines or in none.
_RARE = ("8 step", "steps", "CUDA|loss", "h", "title")


@pytest.mark.parametrize(
    "grep",
    [None, "loss", "loss|step", "o s", "characters", "l.ss", "8", *_RARE, "x ", "x …", "\ufffd"],
)
def test_blocks_are_searched_as_their_lines_would_be(grep: str | None) -> None:
    print("seed", _SEED)
    source = random.Random(_SEED)
    for _ in range(_ROUNDS * 10):
        log = b"".join(source.choices(_PIECES, k=source.randrange(1, 200)))
        lines = log.removesuffix(b"\n").split(b"\n")
        matching = [text for text in map(shown, lines) if grep is None or regex.search(grep, text)]
        search = LogSearch(grep)
        with tempfile.TemporaryFile(buffering=0) as file:
            file.write(log)
            onward = [line for line, _ in search.from_(file, 0, with_torn_end=True)]
            backwards = [line for line, _ in search.before(file, len(log))]
        assert [line for line in onward if line is not None] == matching
        assert [line for line in backwards if line is not None] == matching[::-1]


def test_a_search_without_time_continues_where_it_stopped(
    workspace: Workspace, tmp_path: Path
) -> None:
    log = tmp_path / "train.log"
    log.write_bytes(b"".join(b"step %d of many\n" % step for step in range(200_000)))
    found, cursor, calls = list[str](), None, 0
    while True:
        try:
            with working(Work(within_s=0.2)):
                answer = run_async(
                    lambda cursor=cursor: read_log(
                        workspace, str(log), grep="st.p 1777", cursor=cursor, limit=500
                    )
                )
        except StateError as error:  # this machine stood still
            assert error.code == "READ_TOO_LONG"
            continue
        found, calls = answer.lines + found, calls + 1
        if answer.earlier is None:
            break
        cursor = answer.earlier
    expected = [f"step {n} of many" for n in (1777, *range(17770, 17780), *range(177700, 177800))]
    assert found == expected[-len(found) :] and len(found) == len(expected)
    assert calls > 1
