"""Measures an attempt's pace from the end of its events."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from itertools import pairwise
from pathlib import Path
from statistics import median

from trainer_runtime.core.diagnosis.parse import LogParser
from trainer_runtime.core.diagnosis.parse.pattern import taught
from trainer_runtime.core.diagnosis.stacks.verdict import Pace
from trainer_runtime.core.files.regular import open_regular
from trainer_runtime.core.protocol.lines import Event, ProtocolError, decode

_TAIL_BYTES = 256 << 10
_LOG_TAIL_BYTES = 1 << 20
_NEWEST = 3
_MOMENT_S = 0.05
# Events that show progress of the loop; a checkpoint is reported by another thread.
_SIGNS = frozenset({"started", "metric", "eval"})


def read_pace(events: Path, now: float, since_step: int | None = None) -> Pace:
    """The pace by the last events. `now`: Unix seconds; steps beyond `since_step` are `gained`."""
    signs = [event for event in _tail(events) if event.kind in _SIGNS]
    steps = [event for event in signs if event.kind == "metric"]
    between = [
        (later.t - earlier.t) / ((later.step or 0) - (earlier.step or 0))
        for earlier, later in pairwise(_apart(steps))
        if (later.step or 0) > (earlier.step or 0)
    ]
    step = steps[-1].step if steps else None
    return Pace(
        step=step,
        silent_s=max(0.0, now - signs[-1].t) if signs else None,
        usual_s=median(between) if between else None,
        recent_s=max(between[-_NEWEST:]) if between else None,
        gained=step - since_step if step is not None and since_step is not None else 0,
    )


def _apart(events: Iterable[Event]) -> Iterator[Event]:
    """Those that are not of one moment: of a program's log several lines are read at once."""
    last_t = -math.inf
    for event in events:
        if abs(event.t - last_t) >= _MOMENT_S:
            last_t = event.t
            yield event


def last_steps(log: Path, pattern: str | None = None) -> dict[int, int]:
    """The last step that each rank reported, by the end of the trainer's log; `pattern`: the shape
    of its lines, where it was taught."""
    try:
        with open_regular(log) as file:
            file.seek(max(0, file.seek(0, 2) - _LOG_TAIL_BYTES))
            data = file.read(_LOG_TAIL_BYTES)
    except OSError:
        return {}
    steps: dict[int, int] = {}
    for point in LogParser(patterns=taught(pattern)).feed(data):
        steps[point.rank] = point.step
    return steps


def _tail(path: Path) -> list[Event]:
    try:
        with open_regular(path) as file:
            size = file.seek(0, 2)
            file.seek(max(0, size - _TAIL_BYTES))
            lines = file.read(_TAIL_BYTES).split(b"\n")
    except OSError:
        return []
    events = []
    for line in lines if size <= _TAIL_BYTES else lines[1:]:
        try:
            events.append(decode(line))
        except ProtocolError:
            continue
    return events
