"""What a program reports of itself: JSON lines that it appends to `$TRAINMASTER_EVENTS`.

`{"step": 10, "loss": 3.2, "val_loss": 3.4}` are metrics of a step, `{"target": 400}` the length,
`{"checkpoint": "out/ckpt.pt", "step": 10}` a checkpoint that is whole, `{"watches_stop": true}`
that it watches `$TRAINMASTER_STOP`. `t` (Unix seconds) may stand in each.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trainer_runtime.host.files.files import LineReader

_LARGEST_STEP = 2**53
_LONGEST_NAME = 100
_NOT_VALUES = frozenset({"step", "t", "target", "checkpoint", "watches_stop"})


@dataclass(frozen=True, slots=True)
class Report:
    """One line. `trained` and `evaluated` are metrics of `step`, by name."""

    step: int | None
    t: float | None
    trained: Mapping[str, float]
    evaluated: Mapping[str, float]
    target: int | None
    checkpoint: str | None
    watches_stop: bool


class Reports:
    """Reads the reports of an attempt as they come."""

    def __init__(self, path: Path) -> None:
        self._lines = LineReader(path)
        self.unreadable = 0

    def read(self) -> list[Report]:
        """The new ones; lines of another form are counted as `unreadable`."""
        reports = []
        for line in self._lines.read():
            report = _report(line)
            if report is None:
                self.unreadable += 1
            else:
                reports.append(report)
        return reports


def _report(line: bytes) -> Report | None:
    try:
        fields = json.loads(line)  # with NaN and Infinity, as Python's own json writes them
    except (ValueError, RecursionError):
        return None
    if not isinstance(fields, dict):
        return None
    step = _count(fields.get("step"))
    values = {
        name: value
        for name, raw in fields.items()
        if name not in _NOT_VALUES
        and 0 < len(name) <= _LONGEST_NAME
        and name.isprintable()
        and (value := _value(raw)) is not None
    }
    of_eval = {name for name in values if name.startswith("val_")}
    checkpoint, t = fields.get("checkpoint"), _value(fields.get("t"))
    target = _count(fields.get("target"))
    if step is None and (values or target is None) and fields.get("watches_stop") is not True:
        return None
    return Report(
        step=step,
        t=t if t is not None and math.isfinite(t) and t > 0 else None,
        trained={name: value for name, value in values.items() if name not in of_eval},
        evaluated={name: values[name] for name in of_eval},
        target=target,
        checkpoint=checkpoint if isinstance(checkpoint, str) else None,
        watches_stop=fields.get("watches_stop") is True,
    )


def _count(value: Any) -> int | None:
    is_count = type(value) is int and 0 <= value < _LARGEST_STEP
    return value if is_count else None


def _value(raw: Any) -> float | None:
    if isinstance(raw, str) and raw in ("NaN", "Infinity", "-Infinity"):
        return float(raw)
    if isinstance(raw, bool) or not isinstance(raw, (int, float)):
        return None
    try:
        return float(raw)
    except OverflowError:
        return None
