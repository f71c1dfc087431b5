"""Dataclasses that are read from JSON objects, and written as such, by their annotations."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from enum import Enum
from functools import cache
from types import UnionType
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from trainer_runtime.core.decoding.fields import Fields

R = TypeVar("R", bound="JsonRecord")
# Gives a field's value, by the fields of the whole object and its name there.
Read = Callable[[Fields, str], object]

_SCALARS: Mapping[object, Read] = {
    str: Fields.text,
    int: Fields.integer,
    float: Fields.number,
    bool: Fields.flag,
}
_ITEMS: Mapping[object, Read] = {str: Fields.texts, int: Fields.integers}


class JsonRecord:
    """Base of a dataclass whose fields stand in a JSON object, each under its own name.

    The annotation says how a field is read. A float called `t` or `…_t` is a time in Unix seconds.
    What is absent or null takes the field's default; without one it is None where the annotation
    allows that, else empty as a tuple, a mapping or another record, else an error.

    A field's metadata may have `key`, its name in the JSON, and `read`, a function that gives its
    value by the fields of the whole object.
    """

    __slots__ = ()

    @classmethod
    def of(cls: type[R], fields: Fields) -> R:
        """The record that `to_dict` described; fields that it does not know are ignored.

        Raises:
            ValueError: a field is missing, or has another type.
        """
        build: Any = cls
        values = fields.values
        record: R = build(
            **{
                name: read(fields, key)
                for name, key, has_default, read in _described(build)
                if not has_default or values.get(key) is not None
            }
        )
        return record

    def to_dict(self) -> dict[str, Any]:
        """Its fields as JSON, None included."""
        kind: Any = type(self)
        return {key: _plain(getattr(self, name)) for name, key, *_ in _described(kind)}


class SparseRecord(JsonRecord):
    """One whose JSON leaves out what is None."""

    __slots__ = ()

    def to_dict(self) -> dict[str, Any]:
        return {key: value for key, value in super().to_dict().items() if value is not None}


def _plain(value: object) -> object:
    if isinstance(value, JsonRecord):
        return value.to_dict()
    if isinstance(value, Mapping):
        return {name: _plain(item) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    return value.value if isinstance(value, Enum) else value


@cache
def _described(kind: Any) -> tuple[tuple[str, str, bool, Read], ...]:
    """Of each field: its name, its name in JSON, whether it may be left out, how it is read."""
    hints = get_type_hints(kind)
    described = []
    for item in dataclasses.fields(kind):
        read = item.metadata.get("read")
        has_default = not (item.default is item.default_factory is dataclasses.MISSING)
        described.append(
            (
                item.name,
                item.metadata.get("key", item.name),
                has_default and read is None,
                _whole(read) if read else _by_hint(item.name, hints[item.name]),
            )
        )
    return tuple(described)


def _whole(read: Callable[[Fields], object]) -> Read:
    return lambda fields, key: read(fields)


def _by_hint(name: str, hint: Any) -> Read:
    """Raises: TypeError: no field of JSON is read as that."""
    origin, parts = get_origin(hint), get_args(hint)
    if origin in (Union, UnionType):
        read = _by_hint(name, next(part for part in parts if part is not type(None)))
        return lambda fields, key: None if fields.values.get(key) is None else read(fields, key)
    if hint is float and (name == "t" or name.endswith("_t")):
        return Fields.time
    if hint in _SCALARS:
        return _SCALARS[hint]
    if origin is tuple:
        return _ITEMS.get(parts[0]) or _records(parts[0])
    if origin in (dict, Mapping):
        return _mapping(parts[1])
    if origin is Literal:
        return _choice(parts)
    if isinstance(hint, type) and issubclass(hint, Enum):
        return lambda fields, key: hint(fields.text(key))
    if isinstance(hint, type) and issubclass(hint, JsonRecord):
        return lambda fields, key: hint.of(fields.section(key))
    raise TypeError(f"{name}: no JSON is read as {hint}")


def _choice(words: tuple[str, ...]) -> Read:
    def read(fields: Fields, key: str) -> str:
        word = fields.text(key)
        if word not in words:
            raise fields.error(key, f"is none of {', '.join(words)}")
        return word

    return read


def _records(item: Any) -> Read:
    if get_origin(item) is Mapping:
        return lambda fields, key: tuple(section.values for section in fields.sections(key))
    if isinstance(item, type) and issubclass(item, JsonRecord):
        return lambda fields, key: tuple(map(item.of, fields.sections(key)))
    raise TypeError(f"no JSON is read as a tuple of {item}")


def _mapping(value: Any) -> Read:
    """Of values of any type where the annotation names neither a scalar one nor a record."""
    is_record = isinstance(value, type) and issubclass(value, JsonRecord)
    read = _by_hint("", value) if is_record else _SCALARS.get(value)
    if read is None:
        return lambda fields, key: dict(fields.open_map(key))

    def read_all(fields: Fields, key: str) -> dict[str, object]:
        section = fields.section(key)
        return {name: read(section, name) for name in section.values}

    return read_all
