"""What an answer consists of: fields with a type, a default and a description."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, get_args, get_origin

REQUIRED: Any = object()


@dataclass(frozen=True, slots=True)
class AnswerField:
    """A field as its class declares it. `default`: `REQUIRED` where it has to be given. `alias`:
    its name in JSON, where that is another one."""

    annotation: Any
    default: Any = REQUIRED
    description: str = ""
    alias: str | None = None


@dataclass(frozen=True, slots=True)
class _Description:
    default: Any
    description: str
    alias: str | None


def field(*, default: Any = REQUIRED, description: str = "", alias: str | None = None) -> Any:
    """A field of an answer with more than a default."""
    return _Description(default, description, alias)


def declared_fields(kind: type) -> dict[str, AnswerField]:
    """The fields that the class itself declares. Those without a default are no attributes of it
    afterwards.

    Raises:
        TypeError: an annotation is text: its module has `from __future__ import annotations`.
    """
    fields = {}
    for name, annotation in vars(kind).get("__annotations__", {}).items():
        if isinstance(annotation, str):
            raise TypeError(f"the annotation of {kind.__name__}.{name} is text")
        if get_origin(annotation) is ClassVar:
            continue
        described = vars(kind).get(name, REQUIRED)
        if isinstance(described, _Description):
            fields[name] = AnswerField(
                annotation, described.default, described.description, described.alias
            )
            delattr(kind, name)
        else:
            fields[name] = AnswerField(annotation, described)
    return fields


def takes_floats(annotation: object) -> bool:
    """Whether the numbers of such a value are floats, none of them an int."""
    kinds = _leaves(annotation)
    return float in kinds and int not in kinds and Any not in kinds


def as_floats(value: Any) -> Any:
    """The value with its numbers as floats: JSON of a field is then written alike each time."""
    if type(value) is int:
        return float(value)
    if isinstance(value, list):
        return [as_floats(item) for item in value] if int in map(type, value) else value
    if isinstance(value, Mapping):
        return {key: as_floats(item) for key, item in value.items()}
    return value


def _leaves(annotation: object) -> set[object]:
    if get_origin(annotation) is Literal:
        return set()
    parts = get_args(annotation)
    return set().union(*map(_leaves, parts)) if parts else {annotation}
