"""Detector state as JSON, field by field of dataclasses."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from functools import cache
from typing import Any


def dump_state(state: Any) -> dict[str, Any]:
    """The fields of a dataclass as JSON values, for `restore_state`; every float in it is finite.

    Fields with the metadata `derived` are left out. Lists and dictionaries are copied, their items
    are not: no item of a container is ever modified.
    """
    body: dict[str, Any] = {}
    for name in _stored_fields(state.__class__):
        value = getattr(state, name)
        if isinstance(value, (list, deque)):
            body[name] = list(value)
        elif isinstance(value, dict):
            body[name] = dict(value)
        else:
            body[name] = dump_state(value) if is_dataclass(value) else value
    return body


def restore_state(state: Any, data: Mapping[str, Any]) -> None:
    """Set the fields of the dataclass `state` to those that `dump_state` returned.

    A missing field keeps its default and an unknown one is ignored, so that the previous format
    version can be read. `after_restore` is called on classes that have it.
    """
    for field in fields(state):
        if field.name not in data or field.metadata.get("derived"):
            continue
        value, current = data[field.name], getattr(state, field.name)
        if is_dataclass(current) and not isinstance(current, type):
            restore_state(current, value)
        elif isinstance(current, deque):
            setattr(state, field.name, deque(map(_item, value), maxlen=current.maxlen))
        else:
            setattr(state, field.name, value)
    if hasattr(state, "after_restore"):
        state.after_restore()


@cache
def _stored_fields(kind: Any) -> tuple[str, ...]:
    return tuple(field.name for field in fields(kind) if not field.metadata.get("derived"))


def _item(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value
