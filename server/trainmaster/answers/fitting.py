"""The sizes of answers: what an answer above its cap loses, so that the rest stays whole JSON."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from trainmaster.errors.advice import with_short_program

# Strings are cut to these lengths, one after the other, until the answer fits.
_LENGTHS = (1000, 400, 200, 100, 60)
_SHORTEST = 30
_MOST_ENTRIES = 1 << 16
# For the remark on what was left out: bytes, and less of a small answer: this part.
_REMARK_BYTES, _REMARK_SHARE = 256, 1 / 8
# Strings that a caller needs whole: they are cut last.
_KEPT = frozenset({"run_id", "id", "code", "cursor", "next_step", "instance", "host", "path"})


@dataclass(frozen=True, slots=True)
class Cap:
    """The size of an answer as compact JSON, and what it loses first. By default less than 25,000
    tokens, of which clients cut or refuse more: numbers take one for each 2.3 bytes.

    `drops`: fields that hold lists or maps, the least important first. Of those in `newest` the
    last entries stay, of others the first. `always`: also on the command line, where a list is as
    long as was asked for and other answers are not cut.
    """

    size_bytes: int = 50_000
    drops: tuple[str, ...] = ()
    newest: frozenset[str] = frozenset()
    always: bool = False


class Fields(dict[str, Any]):
    """The fields of an answer or of a part of one: they stay, unlike the entries of a map.

    `sampled`: its lists are columns of samples, of which an even selection stays.
    """

    sampled = False


def size_of(body: object) -> int:
    """The bytes of a value as compact JSON, as if this program and its home had short paths."""
    text = json.dumps(body, ensure_ascii=False, separators=(",", ":"))
    return len(with_short_program(text).encode(errors="replace"))


def fit(whole: Fields, cap: Cap) -> tuple[Fields, dict[str, int]]:
    """The answer within its cap, and by field how many entries it lost.

    Entries of `cap.drops` go first, then the ends of long strings, then entries of every list. At
    least one entry of each list stays.
    """
    if size_of(whole) <= cap.size_bytes:
        return whole, {}
    fitted = _within(whole, cap)
    lost = {
        name: _entries(value) - _entries(fitted[name])
        for name, value in whole.items()
        if _entries(value) > _entries(fitted[name])
    }
    return fitted, lost


def _within(body: Fields, cap: Cap) -> Fields:
    room = cap.size_bytes - min(_REMARK_BYTES, int(cap.size_bytes * _REMARK_SHARE))

    def fits(tried: Fields) -> bool:
        return size_of(tried) <= room

    for name in (name for name in cap.drops if name in body):
        least = _with_entries(body, name, cap.newest, 1)
        if fits(least):
            return _most_entries(partial(_with_entries, body, name, cap.newest), fits)
        body = least
    for longest in _LENGTHS:
        cut = _cut(body, longest, _MOST_ENTRIES)
        if fits(cut):
            return cut
    fewest = _cut(body, _LENGTHS[-1], 1)
    if fits(fewest):
        return _most_entries(partial(_cut, body, _LENGTHS[-1]), fits)
    return _cut(body, _SHORTEST, 1, kept=frozenset())


def _most_entries(make: Callable[[int], Fields], fits: Callable[[Fields], bool]) -> Fields:
    """The largest of what `make` gives that fits; one entry does."""
    least, most = 1, _MOST_ENTRIES
    while most - least > 1:
        middle = (least + most) // 2
        least, most = (middle, most) if fits(make(middle)) else (least, middle)
    return make(least)


def _with_entries(body: Fields, name: str, newest: frozenset[str], most: int) -> Fields:
    value = body[name]
    if isinstance(value, list):
        value = value[-most:] if name in newest else value[:most]
    elif isinstance(value, Mapping) and not isinstance(value, Fields):
        value = dict(list(value.items())[:most])
    return Fields({**body, name: value})


def _cut(body: Fields, longest: int, most: int, *, kept: frozenset[str] = _KEPT) -> Fields:
    """Every list and map with the first `most` entries, strings cut to `longest` characters."""

    def cut(value: Any, name: str, *, sampled: bool = False) -> Any:
        if isinstance(value, str):
            return value if name in kept else shortened(value, longest)
        if isinstance(value, Fields):
            inner = Fields({of: cut(v, of, sampled=value.sampled) for of, v in value.items()})
            inner.sampled = value.sampled
            return inner
        if isinstance(value, Mapping):
            entries = list(value.items())[:most]
            return {shortened(key, longest): cut(item, name) for key, item in entries}
        if isinstance(value, list):
            return [cut(item, name) for item in (_even if sampled else _first)(value, most)]
        return value

    cut_body: Fields = cut(body, "")
    return cut_body


def shortened(text: str, longest: int) -> str:
    """At most `longest` characters."""
    return text if len(text) <= longest else f"{text[: longest - 2]} …"


def _first(values: list[Any], most: int) -> list[Any]:
    return values[:most]


def _even(values: list[Any], most: int) -> list[Any]:
    """An even selection with the last value; of columns of one length, the same rows."""
    if len(values) <= most:
        return values
    return [values[(at + 1) * len(values) // most - 1] for at in range(most)]


def _entries(value: object) -> int:
    """How many entries a value's lists and maps have."""
    if isinstance(value, Mapping):
        own = 0 if isinstance(value, Fields) else len(value)
        return own + sum(_entries(item) for item in value.values())
    if isinstance(value, list):
        return len(value) + sum(_entries(item) for item in value)
    return 0
