"""A parser that has learnt the shapes of a log reads it as one that knows none of them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from trainer_runtime.core.diagnosis.parse import LogParser
from trainer_runtime.core.diagnosis.parse.line import LineReader
from trainer_runtime.core.diagnosis.parse.shapes import Shapes

_TESTS = Path(__file__).parents[3]
_OTHERS = Path(os.environ.get("TRAINMASTER_LOGS") or _TESTS.parents[1] / "shared" / "logs")
_LOGS = [
    *sorted((_TESTS / "golden" / "parse").glob("*.log")),
    *sorted((_TESTS / "blind").glob("*logs/*.log")),
    *sorted(path for path in _OTHERS.glob("*/*") if path.is_file()),
]
_ENOUGH_BYTES = 1 << 16  # of a log, for each of its shapes to be learnt
_MOST_BYTES = 1 << 19

Items = list[tuple[object, ...]]


def read(log: bytes, learnt: Shapes | None = None) -> tuple[Items, Shapes]:
    """All points, and what was learnt; `learnt`: from a log that was read before."""
    parser = LogParser()
    parser._shapes = learnt or parser._shapes
    points = parser.feed(log)
    points.extend(parser.close())
    items = [(p.line_offset, p.key, p.step, repr(p.value), p.segment, p.rank) for p in points]
    # Below a table's header, shapes are learnt again.
    return sorted(items), Shapes(LineReader()) if parser._tables else parser._shapes


@pytest.mark.parametrize("path", _LOGS, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_what_was_learnt_of_a_log_changes_nothing_in_how_it_is_read(path: Path) -> None:
    log = path.read_bytes()[:_MOST_BYTES]
    cold, _ = read(log)
    _, learnt = read(log * max(2, _ENOUGH_BYTES // max(1, len(log))))
    warm, _ = read(log, learnt)
    assert warm == cold


def test_a_zero_that_means_something_else_is_not_read_in_bulk() -> None:
    line = "{'loss': %s, 'grad_norm': nan, 'learning_rate': 1e-05, 'epoch': %s}\n"
    learnt = "".join(line % (f"{9 - n / 10:.1f}", f"{n / 10:.1f}") for n in range(1, 40)).encode()
    items, _ = read(learnt + (line % ("0.0", "4.0")).encode())
    assert [value for _, key, _, value, _, _ in items if key == "loss"][-1] == "nan"
