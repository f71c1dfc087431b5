"""JSON lines: Trainmaster's own events, and objects of other programs, also nested."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from operator import itemgetter
from typing import Any

from trainer_runtime.core.diagnosis.parse.dialects.dialect import Dialect
from trainer_runtime.core.diagnosis.parse.names import (
    CANONICAL,
    IGNORED,
    STEP_NAMES,
    TOTAL_NAMES,
    held_out_key,
    key_of,
)
from trainer_runtime.core.diagnosis.parse.points import Reading, StepFrom
from trainer_runtime.core.protocol.lines import ProtocolError, decode, number
from trainer_runtime.core.protocol.trainer_lines import CheckpointChanged, Completed, trainer_line

# The key of the step in `collect`; metric names can't contain the sign.
STEP = "=step"
# Objects with one of these keys are not columns of numbers: they are read one by one.
SPECIAL = frozenset(("kind", "rank", "train_runtime"))
_UNKNOWN = "=unknown"
_MAX_NAMES = 10_000
_LONGEST_NAME = 200
_DEEPEST = 8
_NOT_FINITE = frozenset(("NaN", "Infinity", "-Infinity"))
_LARGEST_STEP = 2**53
_NUMBERS = frozenset((float, int))
_OBJECTS = frozenset((dict,))
_READ = frozenset((float, int, dict, str))  # the types of which something may be read
_TEXTS = frozenset((str, bool, type(None)))
_HELD_OUT = re.compile(r"(?:eval|val|valid|validation|evaluation|dev|test)(?:[/_]|$)", re.I)
# Fields that say what a record is of: `"event": "validation"`, `"split": "val"`.
RECORD_KIND_FIELDS = frozenset(
    [
        "event",
        "type",
        "phase",
        "split",
        "mode",
        "stage",
        "subset",
        "partition",
        "dataset",
        "prefix",
        "tag",
    ]
)
# `"global_step/max_steps": "5/225"`
_STEP_OF = re.compile(r"(\d{1,15})/(\d{1,15})")
_LEADING_ZEROS = re.compile(rb"([:\[,]\s*-?)0+(?=\d)")
# Reads one object faster than json.loads, and returns where it ends.
scan: Callable[[str, int], tuple[Any, int]] = json.JSONDecoder().scan_once  # type: ignore[attr-defined]


def read(text: bytes) -> Reading | None:
    try:
        record, end = scan(text.decode(), 0)
    except (ValueError, StopIteration, RecursionError):
        return _with_leading_zeros(text)
    if type(record) is not dict or text[end:].strip():
        return None
    if "kind" in record and "v" in record:
        return _our_event(text)
    return reading_of(record)


def _with_leading_zeros(text: bytes) -> Reading | None:
    """JSON does not allow 007, but some programs print it."""
    without = _LEADING_ZEROS.sub(rb"\1", text)
    return None if without == text else read(without)


def end_of(text: bytes) -> int:
    """Where the object at the start of `text` ends; 0 if there is none."""
    try:
        return len(text.decode()[: scan(text.decode(), 0)[1]].encode())
    except (ValueError, StopIteration, RecursionError):
        return 0


def reading_of(record: dict[str, Any]) -> Reading | None:
    """The reading of an object with a step and a number; None for any other."""
    if "train_runtime" in record and "train_loss" in record:  # a mean over the whole training
        record = {**record, "train_loss_mean": record["train_loss"]}
        del record["train_loss"]
    values: dict[str, float] = {}
    collect(record, "", values, 0)
    step = values.pop(STEP, None)
    if not values:
        return None
    if is_held_out(record):
        values = {held_out_key(key): value for key, value in values.items()}
    rank = record.get("rank")
    clean_rank = rank if type(rank) is int and 0 <= rank <= 65535 else None
    if step is None and "loss" in values and "epoch" in values:
        return Reading("huggingface", _floats(values), source=StepFrom.LOG, rank=clean_rank)
    if not is_step(step):
        return None
    reading = Reading("json", _floats(values), step=float(step or 0), rank=clean_rank)
    reading.facts = facts_of(record, step or 0)
    return reading


def is_held_out(record: Mapping[str, Any]) -> bool:
    """Whether one of the fields in `RECORD_KIND_FIELDS` says that it is of an evaluation."""
    if RECORD_KIND_FIELDS.isdisjoint(record):
        return False
    values = (record[name] for name in RECORD_KIND_FIELDS if name in record)
    return any(type(value) is str and _HELD_OUT.match(value) is not None for value in values)


def facts_of(record: dict[str, Any], step: float) -> dict[str, float]:
    """The total that an object names beside its step."""
    total = record.get("total_steps")
    for name, value in record.items() if total is None else ():
        if "/" in name and type(value) is str and (found := _step_of(name, value)):
            total = int(found[2])
    if type(total) is not int or not step <= total <= _LARGEST_STEP:
        return {}
    return {"total_steps": float(total)}


def collect(record: dict[str, Any], prefix: str, values: dict[str, float], depth: int) -> None:
    """Add the numbers of an object, also nested ones, to `values` by metric key; the first of a key
    counts. The step has the key `STEP`; integers stay integers."""
    keys = _keys_below.get(prefix, _NO_KEYS)
    for name, value in record.items():
        kind = type(value)
        if kind is float or kind is int:
            key = keys.get(name, _UNKNOWN)
            if key is _UNKNOWN:
                key = _key(prefix, name)
            if key is not None and key not in values:
                values[key] = value
        elif kind is dict:
            if depth < _DEEPEST:
                collect(value, f"{prefix}{name}/", values, depth + 1)
        elif kind is str and value in _NOT_FINITE:
            collect({name: float(value)}, prefix, values, depth)
        elif kind is str and STEP not in values and (step := _step_of(name, value)):
            values[STEP] = int(step[1])


def _step_of(name: str, value: str) -> re.Match[str] | None:
    """The step and its total, in a text under a name of both."""
    first, _, second = name.lower().partition("/")
    return _STEP_OF.fullmatch(value) if second in TOTAL_NAMES and first in STEP_NAMES else None


def columns_of(records: Sequence[dict[str, Any]]) -> dict[str, list[float]] | None:
    """What `collect` finds in each of the records, by column; None unless all have the same keys
    with values of the same kinds."""
    columns: dict[str, list[float]] = {}
    return columns if _add_columns(records, "", columns, 0) else None


def _add_columns(
    records: Sequence[dict[str, Any]], prefix: str, columns: dict[str, list[float]], depth: int
) -> bool:
    names = records[0]
    if any(map(len(names).__ne__, map(len, records))):
        return False
    for name in names:
        try:
            column = list(map(itemgetter(name), records))
        except KeyError:
            return False
        kinds = set(map(type, column))
        if kinds <= _NUMBERS:
            key = _key_of(prefix, name)
            if key in columns:
                return False
            if key is not None:
                columns[key] = column
        elif kinds == _OBJECTS:
            if depth < _DEEPEST and not _add_columns(
                column, f"{prefix}{name}/", columns, depth + 1
            ):
                return False
        elif not kinds.isdisjoint(_READ) and (
            not kinds <= _TEXTS
            or not _NOT_FINITE.isdisjoint(column)
            or ("/" in name and _step_of(name, column[0] or ""))
        ):
            return False
    return True


def is_step(value: float | None) -> bool:
    return value is not None and 0 <= value <= _LARGEST_STEP and value == int(value)


def are_steps(values: Sequence[float]) -> bool:
    if set(map(type, values)) == {int}:
        return min(values) >= 0 and max(values) <= _LARGEST_STEP
    return all(map(is_step, values))


def _floats(values: dict[str, float]) -> list[tuple[str, float]]:
    return [(key, as_float(value)) for key, value in values.items()]


def as_float(value: float) -> float:
    """The float of a number of any size."""
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


def as_floats(values: Sequence[float]) -> list[float]:
    try:
        return list(map(float, values))
    except OverflowError:
        return list(map(as_float, values))


_NO_KEYS: dict[str, str | None] = {}
_keys: dict[str, str | None] = {}  # by name with its path
_keys_below: dict[str, dict[str, str | None]] = {}  # the same by path and name


def _key_of(prefix: str, name: str) -> str | None:
    key = _keys_below.get(prefix, _NO_KEYS).get(name, _UNKNOWN)
    return _key(prefix, name) if key is _UNKNOWN else key


def _key(prefix: str, own_name: str) -> str | None:
    """The metric key of a name with its path, cached; under a path the last word counts if it is a
    canonical name."""
    name = prefix + own_name
    path, _, last = name.rpartition("/")
    lower = last.lower()
    if lower in STEP_NAMES:
        key: str | None = STEP
    elif lower in TOTAL_NAMES or lower in IGNORED:
        key = None
    else:
        key = key_of(name)
        if path and key == name and lower in CANONICAL:
            known = CANONICAL[lower]
            key = f"val_{known}" if _HELD_OUT.match(path) else known
    if len(_keys) < _MAX_NAMES and len(name) <= _LONGEST_NAME:
        _keys[name] = key
        _keys_below.setdefault(prefix, {})[own_name] = key
    return key


def _our_event(text: bytes) -> Reading | None:
    try:
        event = decode(text)
    except ProtocolError:
        return None
    if event.kind in ("metric", "eval"):
        values = [(key, number(raw)) for key, raw in event.values.items()]
        numbers = [(key, value) for key, value in values if value is not None]
        return Reading("trainmaster", numbers, step=float(event.step or 0))
    line = trainer_line(event)
    if isinstance(line, CheckpointChanged) and line.action == "saved":
        return Reading("trainmaster", step=float(line.step), events=[("checkpoint", line.path)])
    if isinstance(line, Completed):
        return Reading("trainmaster", events=[("completed", "")])
    return None


DIALECT = Dialect("json_lines", (b'{"', b'{ "'), rb"\{ ?\"", read)
