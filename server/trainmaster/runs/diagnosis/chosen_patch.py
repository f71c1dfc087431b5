"""The patch that a resume applies, and whether it still fits."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from trainer_runtime.core.config import ConfigDocument
from trainer_runtime.core.diagnosis.remedies import value_at
from trainer_runtime.core.policy.patch import PatchError, apply_sets
from trainer_runtime.core.protocol.command import command, option
from trainmaster.answers.diagnosis import PatchAnswer
from trainmaster.errors.errors import StateError
from trainmaster.plan.spec import RESOLVED_ONLY, changes_of
from trainmaster.runs.diagnosis.attempt_changes import newest_config
from trainmaster.runs.diagnosis.diagnose_run import FoundOfRun, found_of
from trainmaster.runs.diagnosis.speed import SPEED, speed_changes
from trainmaster.sync.run_view import RunView
from trainmaster.sync.workspace import Workspace

_MOST_NAMED = 10


@dataclass(frozen=True, slots=True)
class ChosenPatch:
    """A patch of a finding, checked against the configuration that the newest attempt had."""

    finding: str
    code: str
    patch: PatchAnswer

    @property
    def start(self) -> str:
        """Where it resumes: `latest`, `best`, `scratch` or a step."""
        return str(self.patch.from_)

    @property
    def why(self) -> str:
        """The attempt's `why`, which names the patch."""
        return f"patch:{self.finding}:{self.patch.id}:{self.code}"


def chosen_patch(workspace: Workspace, view: RunView, named: str) -> ChosenPatch:
    """The patch that `FINDING[:PATCH]` names; the finding's first where none is named.

    FINDING is an id, or a code that is unique among what is wrong.

    Raises:
        StateError: `FINDING_UNKNOWN`, `PATCH_UNKNOWN`, `PATCH_STALE`.
    """
    finding, _, name = named.partition(":")
    if finding.strip() == SPEED:
        return _for_speed(workspace, view, name.strip())
    finding_of_run = _finding(view, finding.strip())
    patch = _patch(view, finding_of_run, name.strip())
    _refuse_stale(view, finding_of_run, patch, newest_config(workspace, view))
    return ChosenPatch(finding_of_run.id, finding_of_run.code, patch)


def _for_speed(workspace: Workspace, view: RunView, named: str) -> ChosenPatch:
    """The change of `diagnose --speed`; it was made of the configuration as it is now."""
    listed = speed_changes(workspace, view)
    for change in listed:
        if named in ("", change.id):
            return ChosenPatch(SPEED, SPEED, change)
    raise StateError(
        "PATCH_UNKNOWN",
        f"Nothing named {named[:80]!r} would make run {view.run.run_id} faster. "
        f"There is: {', '.join(change.id for change in listed) or 'none'}.",
        f"{command('diagnose', view.run.run_id, '--speed')} lists the changes with their gains.",
        field="apply",
    )


def _finding(view: RunView, named: str) -> FoundOfRun:
    findings = found_of(view)
    by_id = [candidate for candidate in findings if candidate.id == named]
    by_code = [
        candidate for candidate in findings if candidate.code == named and not candidate.over
    ]
    if by_id or len(by_code) == 1:
        return (by_id or by_code)[0]
    those = (
        ", ".join(f"{candidate.id} ({candidate.code})" for candidate in findings[:_MOST_NAMED])
        or "none"
    )
    raise StateError(
        "FINDING_UNKNOWN",
        f"Run {view.run.run_id} has no finding {named[:80]!r}. It has: {those}.",
        f"{command('diagnose', view.run.run_id)} lists them with their patches.",
        field="apply",
    )


def _patch(view: RunView, finding: FoundOfRun, named: str) -> PatchAnswer:
    answer = finding.answer()
    for patch in answer.patches:
        if named in ("", patch.id) and _may_be_set(patch.set):
            return patch
    those = ", ".join(patch.id for patch in answer.patches if _may_be_set(patch.set)) or "none"
    what = f"no patch {named[:80]!r}" if named else "no patch"
    raise StateError(
        "PATCH_UNKNOWN",
        f"Finding {finding.id} ({finding.code}) of run {view.run.run_id} has {what}. "
        f"It has: {those}.",
        "Take one of these."
        if those != "none"
        else (f"Follow the advice of {command('diagnose', view.run.run_id)}, then resume."),
        field="apply",
    )


def _may_be_set(sets: Mapping[str, Any]) -> bool:
    """Patches come from a file of the host: only what a resume may change is accepted."""
    return all(
        RESOLVED_ONLY.get(path, changes_of(path)) in ("resume", "box") for path in sets
    ) and all(
        value is None or isinstance(value, (bool, int, float, str)) for value in sets.values()
    )


def _refuse_stale(
    view: RunView, finding: FoundOfRun, patch: PatchAnswer, config: ConfigDocument
) -> None:
    changed = [
        f"{path} is {json.dumps(value_at(config, path))}, not {json.dumps(value)}"
        for path, value in patch.expected.items()
        if value_at(config, path) != value
    ]
    try:
        apply_sets(config, patch.set)
    except PatchError as error:
        changed.append(str(error))
    if changed:
        raise stale(view, finding.id, patch.id, "; ".join(changed))


def stale(view: RunView, finding: str, patch: str, what: str) -> StateError:
    """The error for a patch whose expected values no longer hold."""
    return StateError(
        "PATCH_STALE",
        f"Patch {patch} of finding {finding} does not fit any more: {what}.",
        f"See {command('diagnose', view.run.run_id)} for others, or resume with {option('--set')}.",
        field="apply",
    )
