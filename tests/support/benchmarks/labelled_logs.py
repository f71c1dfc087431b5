"""Judges how a folder of logs is read whose `truth.json` has the losses just as they are printed.

exact: all of them with the steps that are printed, and nothing else; partly: some of them; wrong:
something else; silent: none. `also_right` has other readings that are as good.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path

# A step, None where none is printed, and the loss at it.
Point = tuple[int | None, float]
OUTCOMES = ("exact", "partly", "silent", "wrong")


def judge_logs(folder: Path, read: Callable[[Path], list[Point]]) -> dict[str, list[str]]:
    """The names of the logs by outcome, those alone whose steps are clear. `read`: the training
    losses of a log, as they are read."""
    names: dict[str, list[str]] = {outcome: [] for outcome in OUTCOMES}
    for name, row in json.loads((folder / "truth.json").read_text()).items():
        if not row["ambiguous"]:
            readings = [_points(row["loss"] or [])]
            more = row.get("also_right") or []
            readings += [_points(one) for one in more if isinstance(one, list)]
            names[_outcome(read(folder / row["file"]), readings)].append(name)
    return names


def _points(rows: Sequence[Sequence[float | None]]) -> list[Point]:
    """Without what a bar repeats when it is drawn again."""
    points = [(None if step is None else int(step), float(value or 0)) for step, value in rows]
    return [p for i, p in enumerate(points) if p[0] is None or not i or points[i - 1] != p]


def _outcome(read: list[Point], readings: list[list[Point]]) -> str:
    if not readings[0]:
        return "wrong" if read else "exact"
    if not read:
        return "silent"
    read = _points(read)
    if any(_is_same(read, right) for right in readings):
        return "exact"
    return "partly" if any(_is_within(read, right) for right in readings) else "wrong"


def _is_same(read: list[Point], right: list[Point]) -> bool:
    return len(read) == len(right) and all(map(_is_near, read, right))


def _is_within(read: list[Point], right: list[Point]) -> bool:
    """Whether they are, in this order, some of the right ones."""
    rest = iter(right)
    return all(any(_is_near((None, point[1]), each) for each in rest) for point in read)


def _is_near(read: Point, right: Point) -> bool:
    step, value = right
    is_step = read[0] is None or step is None or read[0] == step
    return is_step and abs(read[1] - value) <= 1e-4 * max(1.0, abs(value))
