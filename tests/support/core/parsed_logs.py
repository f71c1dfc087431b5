"""What a parser made of a log, in a form that two of them can be compared by."""

from __future__ import annotations

import json
from collections.abc import Iterable
from itertools import pairwise

from trainer_runtime.core.diagnosis.parse import LogParser, Parsed

Told = tuple[object, ...]


def told_by(log: bytes, cuts: Iterable[int] = (), *, through_json: bool = False) -> list[Told]:
    """Points and events of `log` fed in pieces; `through_json`: with a new parser for each."""
    parser, told = LogParser(), []
    edges = sorted({0, *(min(cut, len(log)) for cut in cuts), len(log)})
    for start, end in pairwise(edges):
        told += as_told(parser.feed(log[start:end]))
        if through_json:
            parser = LogParser.from_dict(json.loads(json.dumps(parser.to_dict())))
    told += as_told(parser.close())
    state = parser.to_dict()["coverage"]
    return [*sorted(told, key=repr), tuple(sorted(state.items(), key=str))]


def as_told(parsed: Parsed) -> list[Told]:
    points: list[Told] = [
        (p.line_offset, p.key, p.step, p.t, repr(p.value), p.rank, p.segment, p.inferred)
        for p in parsed
    ]
    events: list[Told] = [(e.line_offset, e.kind, e.step, e.rank, e.text) for e in parsed.events]
    return points + events


def columns(log: bytes, key: str, rank: int = 0) -> tuple[list[int], list[float]]:
    """Steps and values of one key, in the log's order."""
    parser = LogParser()
    parsed = parser.feed(log)
    parsed.extend(parser.close())
    chosen = [point for point in parsed if point.key == key and point.rank == rank]
    return [point.step for point in chosen], [point.value for point in chosen]
