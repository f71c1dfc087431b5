"""Reads many JSON lines without a fixed shape at once."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any

from trainer_runtime.core.diagnosis.parse.dialects.json_lines import (
    RECORD_KIND_FIELDS,
    SPECIAL,
    STEP,
    are_steps,
    as_floats,
    collect,
    columns_of,
    facts_of,
    is_held_out,
    is_step,
    scan,
)
from trainer_runtime.core.diagnosis.parse.points import Reading
from trainer_runtime.core.diagnosis.parse.rows import Block, Rows, increases

_KINDS = 256  # sets of keys in one block; lines with further ones are read singly

# A number that no log contains: together with it, lines are decoded in one call, and none can end
# within another.
_MARK = random.SystemRandom().getrandbits(62)
_BETWEEN = b",%d," % _MARK


_Numbered = tuple[Sequence[Any], Sequence[int]]


@dataclass(slots=True)
class _Kind:
    """Objects with the same keys: their rows, step first, and lines."""

    names: tuple[str, ...]
    row_of: Callable[[dict[str, float]], tuple[float, ...]]
    rows: list[tuple[float, ...]]
    index: list[int]


def rows_of_objects(block: Block, index: Sequence[int]) -> tuple[list[Rows], list[int]]:
    """The rows of lines that are objects with a step, and the lines that must be read singly."""
    lines = block.lines
    records = list(_decoded([lines[i] for i in index]))
    found: list[Rows] = []
    singly: list[int] = []
    for numbered in _by_length(records, index):
        rows = _rows_of_columns(*numbered)
        if rows is not None:
            found.append(rows)
        else:
            found += _rows_by_kind(*numbered, singly)
    return found, singly


def _by_length(records: Sequence[Any], index: Sequence[int]) -> Iterator[_Numbered]:
    """The records and their lines, parted by the number of keys; other values in one part."""
    lengths = [len(record) if type(record) is dict else -1 for record in records]
    different = set(lengths)
    if len(different) == 1:
        yield records, index
        return
    for length in sorted(different):
        chosen = [i for i, other in enumerate(lengths) if other == length]
        yield [records[i] for i in chosen], [index[i] for i in chosen]


def _rows_of_columns(records: Sequence[Any], index: Sequence[int]) -> Rows | None:
    """The rows of records, read column by column; None unless all have the same keys."""
    first = records[0]
    if type(first) is not dict or not SPECIAL.isdisjoint(first):
        return None
    if not RECORD_KIND_FIELDS.isdisjoint(first) and any(map(is_held_out, records)):
        return None
    columns = columns_of(records)
    steps = columns.pop(STEP, None) if columns else None
    if not columns or steps is None or not are_steps(steps):
        return None
    made = _made(tuple(columns), list(columns.values()), steps, index)
    made.like.facts = facts_of(records[-1], max(steps))
    return made


def _rows_by_kind(
    records: Sequence[Any], index: Sequence[int], singly: list[int]
) -> Iterator[Rows]:
    """The rows of any records, read one by one; other lines are added to `singly`."""
    kinds: dict[frozenset[str], _Kind] = {}
    by_order: dict[tuple[str, ...], _Kind] = {}
    for i, record in zip(index, records, strict=True):
        if type(record) is not dict or not SPECIAL.isdisjoint(record) or is_held_out(record):
            singly.append(i)
            continue
        values: dict[str, float] = {}
        collect(record, "", values, 0)
        order = tuple(values)
        kind = by_order.get(order) or kinds.get(frozenset(order))
        if kind is None:
            if STEP not in values or len(values) < 2 or len(kinds) >= _KINDS:
                singly.append(i)
                continue
            names = tuple(name for name in values if name != STEP)
            kind = _Kind(names, itemgetter(STEP, *names), [], [])
            kinds[frozenset(order)] = kind
        by_order[order] = kind
        kind.rows.append(kind.row_of(values))
        kind.index.append(i)
    for kind in kinds.values():
        if (rows := _rows(kind, singly)) is not None:
            yield rows


def _decoded(lines: Sequence[bytes]) -> Iterable[Any]:
    """The value of each line; None where it is not one JSON document."""
    try:
        text = (b"[%s]" % _BETWEEN.join(lines)).decode()
        values, end = scan(text, 0)
    except (ValueError, StopIteration, RecursionError):
        return map(_document, lines)
    marks = values[1::2]
    if end != len(text) or len(values) != 2 * len(lines) - 1 or marks.count(_MARK) < len(marks):
        return map(_document, lines)
    return values[::2]  # type: ignore[no-any-return]


def _document(line: bytes) -> Any:
    try:
        text = line.decode()
        value, end = scan(text, 0)
    except (ValueError, StopIteration, RecursionError):
        return None
    return value if end == len(text) else None


def _rows(kind: _Kind, singly: list[int]) -> Rows | None:
    """The rows whose step is whole; the lines of the others are added to `singly`."""
    rows, index = kind.rows, kind.index
    whole = [is_step(row[0]) for row in rows]
    if not all(whole):
        singly += [i for i, good in zip(index, whole, strict=True) if not good]
        rows = [row for row, good in zip(rows, whole, strict=True) if good]
        index = [i for i, good in zip(index, whole, strict=True) if good]
    if not rows:
        return None
    steps, *columns = zip(*rows, strict=True)
    return _made(kind.names, columns, steps, index)


def _made(
    names: tuple[str, ...],
    columns: Sequence[Sequence[float]],
    steps: Sequence[float],
    index: Sequence[int],
) -> Rows:
    floats: list[Sequence[float]] = [as_floats(column) for column in columns]
    made = Rows(Reading("json"), names, floats, index, as_floats(steps), None, 0, False)
    made.increasing = increases(made.steps or [])
    return made
