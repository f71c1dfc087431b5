"""What is understood of the lines that a log has already."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from trainer_runtime.core.diagnosis.parse import LogParser, Parsed
from trainer_runtime.core.diagnosis.parse.pattern import taught
from trainer_runtime.core.diagnosis.parse.points import Point
from trainer_runtime.host.attach.log_events import tail

_READ_BYTES = 4 << 20


def first_reading(path: str | None, pattern: str | None) -> dict[str, Any]:
    """How many of the last `lines` with numbers are `read`, how many are `matched` by the pattern,
    and the `first` and `last` (step, value) of its `key`: the loss, or else its first metric.

    `path` None: a pane, of which nothing is known before it is watched.
    """
    reading: dict[str, Any] = {"lines": 0, "read": 0, "matched": 0}
    if path is None:
        return reading
    parser = LogParser(patterns=taught(pattern))
    for data in tail(Path(path), _READ_BYTES):
        _note(reading, parser.feed(data))
    _note(reading, parser.close())
    reading["lines"] = parser.coverage.lines_with_numbers
    reading["read"] = parser.coverage.lines_read
    reading["matched"] = parser.coverage.lines_taught
    return reading


def _note(reading: dict[str, Any], parsed: Parsed) -> None:
    for point in parsed:
        key = reading.get("key")
        if key is None or (point.key == "loss" != key):
            reading["key"], reading["first"] = point.key, _described(point)
        if point.key == reading["key"]:
            reading["last"] = _described(point)


def _described(point: Point) -> tuple[int, str]:
    return point.step, f"{point.value:.6g}"
