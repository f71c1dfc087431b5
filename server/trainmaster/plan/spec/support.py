"""Refuses the values of a spec that its framework does not support; none is ignored."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

from trainer_runtime.core.frameworks import FrameworkName
from trainmaster.errors.errors import Problem, SpecError
from trainmaster.plan.fields.annotations import Section
from trainmaster.plan.fields.document import TrainingSpec
from trainmaster.plan.fields.field_tree import Field, all_fields
from trainmaster.plan.fields.place import NOT_BUILT
from trainmaster.plan.frameworks import FRAMEWORKS, framework_of
from trainmaster.plan.spec.validate import shown


def refuse_what_is_not_built(spec: TrainingSpec) -> None:
    """Check that the spec's framework has a place for every value.

    Raises:
        SpecError: NOT_YET_SUPPORTED, listing each field for which it has none.
    """
    problems = list(_problems(spec))
    if problems:
        raise SpecError.listing(problems)


def _problems(spec: TrainingSpec) -> Iterator[Problem]:
    refused: list[str] = []
    for field, default in _fields_with_defaults():
        if any(field.path.startswith((f"{other}.", f"{other}[].")) for other in refused):
            continue
        place = framework_of(spec).place_of(field)
        for path, value in values_at(spec, field.path):
            if not place.accepts(value, default):
                refused.append(field.path)
                yield _problem(field, path, value, spec.framework)


@cache
def _fields_with_defaults() -> tuple[tuple[Field, Any], ...]:
    return tuple((field, field.default) for field in all_fields())


def _problem(field: Field, path: str, value: Any, framework: FrameworkName) -> Problem:
    place = FRAMEWORKS[framework].place_of(field)
    value_is = f"`{path}` is {shown(_plain(value))}"
    if place.lacks == NOT_BUILT:
        why = "which is not built yet" + ("" if _is_alike(field) else f" for {framework}")
    else:
        why = f"which {framework} can't do: {place.lacks}"
    among = "" if _is_alike(field) else f" for {framework}"
    fix = f"`{path}` takes {place.words}{among}." if place.where else f"Leave `{path}` out{among}."
    return Problem("NOT_YET_SUPPORTED", path, f"{value_is}, {why}.", fix)


def _is_alike(field: Field) -> bool:
    """Whether all frameworks are alike in this."""
    places = [record.place_of(field) for record in FRAMEWORKS.values()]
    return all(place == places[0] for place in places)


def values_at(spec: Section, path: str) -> Iterator[tuple[str, Any]]:
    """The values that a path of `fields.all_fields` meets in a spec, each with its own path."""
    values: list[tuple[str, Any]] = [("", spec)]
    for part in path.split("."):
        name = part.removesuffix("[]")
        held = [
            (f"{where}.{name}" if where else name, getattr(value, name))
            for where, value in values
            # Where a field may also be a word (`environment: auto`), it has no members then.
            if isinstance(value, Section)
        ]
        if part.endswith("[]"):
            held = [
                (f"{where}[{index}]", item)
                for where, items in held
                for index, item in enumerate(items or ())
            ]
        values = held
    yield from values


def _plain(value: Any) -> Any:
    if isinstance(value, Section):
        return value.model_dump(exclude_defaults=True)
    if isinstance(value, list):
        return [_plain(item) for item in value]
    return value
