"""Reads many JSON lines without a fixed shape at once."""

from __future__ import annotations

from collections.abc import Sequence
from operator import itemgetter
from typing import Any

from trainer_runtime.core.diagnosis.parse.dialects.json_lines import (
    STEP,
    as_float,
    collect,
    is_step,
    scan,
)
from trainer_runtime.core.diagnosis.parse.points import Reading
from trainer_runtime.core.diagnosis.parse.rows import Block, Rows, increases

_KINDS = 256  # sets of keys in one block; lines with further ones are read singly


def rows_of_objects(block: Block, index: Sequence[int]) -> tuple[list[Rows], list[int]]:
    """The rows of lines that are objects with a step, and the lines that must be read singly."""
    lines = block.lines
    singly: list[int] = []
    kinds: dict[frozenset[str], tuple[Any, list[tuple[float, ...]], list[int]]] = {}
    for i in index:
        try:
            text = lines[i].decode()
            record, end = scan(text, 0)
        except (ValueError, StopIteration, RecursionError):
            singly.append(i)
            continue
        if end != len(text) or type(record) is not dict or "kind" in record or "rank" in record:
            singly.append(i)
            continue
        values: dict[str, float] = {}
        collect(record, "", values, 0)
        kind = kinds.get(frozenset(values))
        if kind is None:
            if STEP not in values or len(values) < 2 or len(kinds) >= _KINDS:
                singly.append(i)
                continue
            kind = itemgetter(STEP, *sorted(values.keys() - {STEP})), [], []
            kinds[frozenset(values)] = kind
        kind[1].append(kind[0](values))
        kind[2].append(i)
    return [_rows(keys, kind, singly) for keys, kind in kinds.items() if kind[1]], singly


def _rows(
    keys: frozenset[str],
    kind: tuple[Any, list[tuple[float, ...]], list[int]],
    singly: list[int],
) -> Rows:
    _, rows, index = kind
    whole = [is_step(row[0]) for row in rows]
    if not all(whole):
        singly += [i for i, good in zip(index, whole, strict=True) if not good]
        rows = [row for row, good in zip(rows, whole, strict=True) if good]
        index = [i for i, good in zip(index, whole, strict=True) if good]
    columns = [list(map(as_float, column)) for column in zip(*rows, strict=True)]
    steps = columns[0] if columns else []
    names = tuple(sorted(keys - {STEP}))
    made = Rows(Reading("json"), names, list(columns[1:]), index, steps, None, 0, False)
    made.increasing = increases(steps)
    return made
