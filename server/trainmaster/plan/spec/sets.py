"""Applies `--set a.b=value` to a document before it is validated."""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any, get_args, get_origin

from trainer_runtime.core.protocol.command import option
from trainmaster.errors.errors import SpecError
from trainmaster.plan.fields.annotations import Section
from trainmaster.plan.fields.document import TrainingSpec
from trainmaster.plan.fields.field_tree import bare, field_type, members
from trainmaster.plan.spec.validate import shown, unknown_key
from trainmaster.settings.yaml12 import load_yaml

_INDEX = re.compile(r"\[?(\d{1,6})\]?(?:\.|$)")


def apply_sets(document: dict[str, Any], sets: Sequence[str]) -> dict[str, Any]:
    """A copy of `document` with each `path=value` applied in order.

    `value` is read as YAML. Items of lists are addressed by their name or number:
    `data.sources.main.weight`, `data.sources[0].weight`. Mappings that are missing are made.

    Raises:
        SpecError: UNKNOWN_KEY for a path that the spec does not have, INVALID_VALUE for text
            without `=`, or what reading the value as YAML raises.
    """
    changed = copy.deepcopy(document)
    for text in sets:
        path, equals, value = text.partition("=")
        if not equals or not path.strip():
            raise SpecError(
                "INVALID_VALUE",
                f"{option('--set', shown(text))} is not of the form path=value.",
                f"Write for example {option('--set', 'optimizer.lr=0.001')}.",
            )
        _assign(changed, path.strip(), load_yaml(value))
    return changed


def _assign(document: dict[str, Any], path: str, value: Any) -> None:
    *steps, last = _steps(document, path)
    holder: Any = document
    for step, following in pairwise([*steps, last]):
        held = holder[step] if isinstance(step, int) else holder.get(step)
        if isinstance(held, list) and isinstance(following, str):
            raise SpecError(
                "INVALID_VALUE",
                f"`{path}` is a field of a section, which is a list in this spec.",
                "Write the section as `name: value` pairs.",
                field=path,
            )
        if not isinstance(held, (dict, list)):
            # A word such as `environment: auto` gives way to the mapping that is set into.
            held = {}
            holder[step] = held
        holder = held
    holder[last] = value


def _steps(document: dict[str, Any], path: str) -> Iterator[str | int]:
    """The keys and indexes that `path` goes through, checked against the spec's fields."""
    rest, walked = path, ""
    held: Any = document
    kinds: tuple[Any, ...] = (TrainingSpec,)
    while rest:
        step, rest, kinds = _step(held, kinds, rest, walked)
        walked = f"{walked}[{step}]" if isinstance(step, int) else f"{walked}.{step}".lstrip(".")
        held = held.get(step) if isinstance(held, dict) else _item(held, step)
        yield step


def _step(
    held: Any, kinds: tuple[Any, ...], rest: str, walked: str
) -> tuple[str | int, str, tuple[Any, ...]]:
    for kind in (bare(kind) for kind in kinds):
        if isinstance(kind, type) and issubclass(kind, Section):
            name, _, after = rest.partition(".")
            name, bracket, index = name.partition("[")
            if bracket:
                after = f"[{index}.{after}" if after else f"[{index}"
            info = kind.model_fields.get(name)
            if info is None:
                fields = list(kind.model_fields)
                raise SpecError.listing([unknown_key(walked, name, fields)])
            return name, after, members(field_type(info))
        if get_origin(kind) is dict:
            # Free keys may hold dots; what is left is one key.
            return rest, "", members(get_args(kind)[1])
        if get_origin(kind) is list and isinstance(held, list):
            index_of, after = _list_item(held, rest, walked)
            return index_of, after, members(get_args(kind)[0])
    raise SpecError(
        "UNKNOWN_KEY",
        f"`{walked}` has no parts, so `{walked}.{rest}` is not a key of the spec.",
        f"Set `{walked}` as a whole.",
        field=f"{walked}.{rest}",
    )


def _list_item(items: list[Any], rest: str, walked: str) -> tuple[int, str]:
    names = [item.get("name") if isinstance(item, dict) else None for item in items]
    # The longest first: names may hold dots, and one may begin another.
    for name in sorted((name for name in names if isinstance(name, str)), key=len, reverse=True):
        if rest == name or rest.startswith(f"{name}."):
            return names.index(name), rest[len(name) + 1 :]
    match = _INDEX.match(rest)
    if match is not None and int(match[1]) < len(items):
        return int(match[1]), rest[match.end() :]
    places = [name for name in names if isinstance(name, str)]
    places += [f"[{number}]" for number in range(len(items))]
    raise SpecError.listing([unknown_key(walked, rest.partition(".")[0], places)])


def _item(held: Any, step: str | int) -> Any:
    if isinstance(held, list) and isinstance(step, int):
        return held[step]
    return None
