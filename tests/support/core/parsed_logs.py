"""The parser's results for a log in a comparable form."""

from __future__ import annotations

import json
from collections.abc import Iterable
from itertools import pairwise

from trainer_runtime.core.diagnosis.parse import LogParser, Parsed

Item = tuple[object, ...]


def parsed_items(log: bytes, cuts: Iterable[int] = (), *, through_json: bool = False) -> list[Item]:
    """Points and events of `log` fed in pieces; `through_json`: with a new parser for each."""
    parser, items = LogParser(), []
    edges = sorted({0, *(min(cut, len(log)) for cut in cuts), len(log)})
    for start, end in pairwise(edges):
        items += items_of(parser.feed(log[start:end]))
        if through_json:
            parser = LogParser.from_dict(json.loads(json.dumps(parser.to_dict())))
    items += items_of(parser.close())
    state = parser.to_dict()["coverage"]
    return [*sorted(items, key=repr), tuple(sorted(state.items(), key=str))]


def items_of(parsed: Parsed) -> list[Item]:
    points: list[Item] = [
        (p.line_offset, p.key, p.step, p.t, repr(p.value), p.rank, p.segment, p.inferred)
        for p in parsed
    ]
    events: list[Item] = [(e.line_offset, e.kind, e.step, e.rank, e.text) for e in parsed.events]
    return points + events


def columns(log: bytes, key: str, rank: int = 0) -> tuple[list[int], list[float]]:
    """Steps and values of one key, in the log's order."""
    parser = LogParser()
    parsed = parser.feed(log)
    parsed.extend(parser.close())
    chosen = [point for point in parsed if point.key == key and point.rank == rank]
    return [point.step for point in chosen], [point.value for point in chosen]
