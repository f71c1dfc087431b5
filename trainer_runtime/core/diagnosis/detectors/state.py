"""Detector state as JSON, by the fields of dataclasses."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from functools import cache
from typing import Any


def described(state: Any) -> dict[str, Any]:
    """What `restore` brings back of a dataclass: fit for JSON, as every float in it is finite.

    Fields with the metadata `derived` are left out. Lists and dictionaries are copies, what stands
    in them is not: nothing in a state changes within its containers.
    """
    body: dict[str, Any] = {}
    for name in _kept(state.__class__):
        value = getattr(state, name)
        if isinstance(value, (list, deque)):
            body[name] = list(value)
        elif isinstance(value, dict):
            body[name] = dict(value)
        else:
            body[name] = described(value) if is_dataclass(value) else value
    return body


def restore(state: Any, data: Mapping[str, Any]) -> None:
    """Give the dataclass `state` the values that `described` told of it.

    A field that `data` lacks keeps its default and one that is not known is ignored, so that the
    format version before is read as well. A class with a method `restored` is told afterwards.
    """
    for field in fields(state):
        if field.name not in data or field.metadata.get("derived"):
            continue
        value, current = data[field.name], getattr(state, field.name)
        if is_dataclass(current) and not isinstance(current, type):
            restore(current, value)
        elif isinstance(current, deque):
            setattr(state, field.name, deque(map(_plain, value), maxlen=current.maxlen))
        else:
            setattr(state, field.name, value)
    if hasattr(state, "restored"):
        state.restored()


@cache
def _kept(kind: Any) -> tuple[str, ...]:
    return tuple(field.name for field in fields(kind) if not field.metadata.get("derived"))


def _plain(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value
