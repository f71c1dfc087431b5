"""The changes of a resume, by the annotations of the fields (`plan/fields`). Pure."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from trainer_runtime.core.config import ConfigChanges, ConfigDocument
from trainmaster.errors.errors import SpecError
from trainmaster.plan.changes.batch import of_one_batch
from trainmaster.plan.changes.phases import total_steps
from trainmaster.plan.changes.ranks import sets_of_batch
from trainmaster.plan.changes.schedule import sets_of_schedule
from trainmaster.plan.fields.field_tree import RESOLVED_ONLY, changes_of, fixed_sections
from trainmaster.plan.planned import plan_again


@dataclass(frozen=True, slots=True)
class Before:
    """A run before its changes.

    `spec`, `facts`: on record, as `plan_again` takes them. `newest`: the configuration of the last
    attempt. `continues`: not from scratch, where the schedule would begin again. `lends_time`: its
    host, where sessions are requested as they were planned.
    """

    spec: str
    facts: Mapping[str, Any]
    newest: ConfigDocument
    continues: bool
    lends_time: str | None = None


@dataclass(frozen=True, slots=True)
class Changed:
    """`values`: of the resolved configuration, by dotted name; `spec`: the changed spec."""

    values: dict[str, Any]
    spec: str


# What a change keeps as the last attempt had it, in this order: each sees the plan of those before.
_Rule = Callable[[Before, Sequence[str], ConfigDocument], list[str]]
_RULES: Sequence[_Rule] = (
    lambda before, sets, planned: sets_of_batch(sets, before.newest, planned, before.lends_time),
    lambda before, sets, planned: (
        sets_of_schedule(sets, before.newest, planned) if before.continues else []
    ),
)


def changes(before: Before, sets: Sequence[str], patch: ConfigChanges) -> Changed:
    """What `sets` and the values of a patch change; `sets` win over the patch.

    Raises:
        SpecError: a field that doesn't exist or may not change, or a value that isn't possible.
    """
    wanted = sets_with_patch(sets, patch)
    if not wanted:
        return Changed({}, before.spec)
    _refuse_fixed(wanted)
    after = plan_again(before.spec, wanted, before.facts)
    kept: list[str] = []
    for rule in _RULES:
        more = rule(before, wanted, after.config)
        if more:
            kept += more
            after = plan_again(before.spec, [*wanted, *kept], before.facts)
    was = plan_again(before.spec, (), before.facts)  # what the facts alone give: no change
    values = {
        path: value
        for path, value in _differences(was.config, after.config, "").items()
        if path.partition(".")[0] not in fixed_sections() and RESOLVED_ONLY.get(path) != "never"
    }
    values |= {path: value for path, value in patch.items() if path not in _names(sets)}
    values |= total_steps(before.newest, values)
    named = _names([*sets, *kept])
    return Changed(of_one_batch(values, named, patch, after.config, before.newest), after.spec_text)


def sets_with_patch(sets: Sequence[str], patch: ConfigChanges) -> list[str]:
    """The `--set` items of the new plan: of the patch, the fields that the spec has; the caller's
    own come last, and win."""
    of_patch = [
        f"{path}={json.dumps(value)}" for path, value in patch.items() if path not in RESOLVED_ONLY
    ]
    return [*of_patch, *sets]


def _refuse_fixed(sets: Sequence[str]) -> None:
    for path in _names(sets):
        if changes_of(path) == "never":
            raise SpecError(
                "INVALID_VALUE",
                f"`{path}` can't change once the run exists.",
                "Launch a new run with it.",
                field=path,
            )


def _names(sets: Sequence[str]) -> list[str]:
    return [item.partition("=")[0].strip() for item in sets]


def _differences(before: ConfigDocument, after: ConfigDocument, prefix: str) -> dict[str, Any]:
    differences: dict[str, Any] = {}
    for key, value in after.items():
        old = before.get(key)
        if isinstance(value, dict) and isinstance(old, dict) and set(old) == set(value):
            differences |= _differences(old, value, f"{prefix}{key}.")
        elif _by_name(old) and list(_by_name(old)) == list(_by_name(value)):
            differences |= _differences(_by_name(old), _by_name(value), f"{prefix}{key}.")
        elif old != value:
            differences[f"{prefix}{key}"] = value
    return differences


def _by_name(items: object) -> dict[str, Any]:
    """The items of a list of sections by their names; none where they have none."""
    if not isinstance(items, list) or not all(isinstance(item, dict) for item in items):
        return {}
    named = {str(item["name"]): item for item in items if "name" in item}
    return named if len(named) == len(items) else {}
