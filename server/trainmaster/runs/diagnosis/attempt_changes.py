"""The configuration changes of each attempt: what changed, by whom, and why."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from trainer_runtime.core.config import ConfigDocument, RunConfig
from trainer_runtime.core.config.rehost import PLACEMENT
from trainer_runtime.core.decoding import DecodingError, decode_fields
from trainer_runtime.core.policy.intervention import RULES
from trainer_runtime.core.policy.patch import PatchError, apply_sets
from trainer_runtime.core.policy.skipped_data import is_skipped
from trainer_runtime.core.protocol.followed_files import LARGEST_WHOLE_BYTES, REPLACED_IN_ATTEMPT
from trainer_runtime.core.protocol.journal import AttemptRecord
from trainer_runtime.core.protocol.text import shown
from trainmaster.runs.diagnosis.tried_patches import PATCH
from trainmaster.sync.run_view import RunView
from trainmaster.sync.workspace import Workspace

_CONFIG = REPLACED_IN_ATTEMPT[0]
# Different in each attempt, or of the place where it is.
_NOT_COMPARED = frozenset({"attempt", "run_id", PLACEMENT, "slurm"})
_OPERATORS = frozenset({"launch", "resume", "adopt"})
_NONE = object()
# The field of `recovery` that answers an end of this kind, where the journal doesn't say.
_POLICY = {"guard": "on_nan", **RULES}


@dataclass(frozen=True, slots=True)
class Started:
    """`by`: `operator`, `patch:FINDING:PATCH` or `policy:FIELD [PATCH]`; `why` is a finding's code,
    or the reason that the attempt before ended for.

    `changes`: dotted field to (old, new); an old value is None also where there was none.
    `by_operator`: those of them that the operator asked for, beside a patch; others of the
    operator's resume follow from these.
    """

    by: str
    why: str | None
    changes: Mapping[str, tuple[Any, Any]] = field(default_factory=dict)
    by_operator: tuple[str, ...] = ()


def started(workspace: Workspace, view: RunView) -> dict[int, Started]:
    """The start of each attempt, by number."""
    starts: dict[int, Started] = {}
    before: dict[str, Any] | None = None
    for attempt in view.record.attempts:
        config = _config(workspace, view, attempt.number)
        if config is None and before is not None:
            config = _with(before, attempt)
        changes = {} if before is None or config is None else dict(_changes(before, config, ""))
        by, why = _who(attempt)
        own = tuple(_own(view, attempt, changes))
        starts[attempt.number] = Started(by, why, changes, own)
        before = config or before
    return starts


def newest_config(workspace: Workspace, view: RunView) -> dict[str, Any]:
    """The configuration of the newest attempt, the host's own changes included."""
    current = view.record.current
    config = None if current is None else _config(workspace, view, current.number)
    if config is not None:
        return config
    config = dict(view.run.document)
    for attempt in view.record.attempts:
        config = _with(config, attempt)
    return config


def _config(workspace: Workspace, view: RunView, attempt: int) -> dict[str, Any] | None:
    """The configuration in the mirror; None where it can't be read."""
    mirror = workspace.mirror.of(view.run.run_id, view.run.placement)
    try:
        data = mirror.read(f"attempts/{attempt}/{_CONFIG}", 0, LARGEST_WHOLE_BYTES)
        return dict(decode_fields(data, _CONFIG, max_bytes=LARGEST_WHOLE_BYTES).values)
    except (OSError, DecodingError):
        return None


def _with(config: ConfigDocument, attempt: AttemptRecord) -> dict[str, Any]:
    try:
        changed = apply_sets(config, attempt.set)
    except PatchError:
        changed = dict(config)  # as the host does: left as it was
    data = changed.get("data")
    if not attempt.skip or not isinstance(data, Mapping):
        return changed
    if not is_skipped(RunConfig.parse(changed), attempt.skip):
        changed["data"] = {**data, "skip": [*(data.get("skip") or []), dict(attempt.skip)]}
    return changed


def _changes(
    before: ConfigDocument, after: ConfigDocument, prefix: str
) -> Iterator[tuple[str, tuple[Any, Any]]]:
    for key in dict.fromkeys((*before, *after)):
        old, new = before.get(key), after.get(key)
        if old == new or (not prefix and key in _NOT_COMPARED):
            continue
        if isinstance(old, Mapping) and isinstance(new, Mapping):
            yield from _changes(old, new, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", (old, new)


def _own(view: RunView, attempt: AttemptRecord, changes: Iterable[str]) -> Iterator[str]:
    """Which of the changes the operator asked for: those that the spec has, beside a patch where
    the record holds it."""
    if attempt.by is None and attempt.why in _OPERATORS:
        # Of the data, only a move to another host changes something: where it is.
        named = [name for name in named_in_spec(view.run.spec) if not name.startswith("data.")]
        yield from (path for path in changes if any(is_of(path, name) for name in named))
    elif attempt.why.startswith(PATCH):
        beside = set(_beside_patch(view, attempt))
        yield from (path for path in changes if path in beside)


def named_in_spec(spec: str) -> Iterator[str]:
    """The dotted fields that a spec's text gives."""
    try:
        yield from _leaves(json.loads(spec), "")
    except (ValueError, RecursionError):
        return  # recorded by an attach


def _leaves(value: Any, path: str) -> Iterator[str]:
    if not isinstance(value, dict):
        yield path
        return
    for key, inner in value.items():
        yield from _leaves(inner, f"{path}.{key}" if path else str(key))


def is_of(path: str, name: str) -> bool:
    """Whether a field of the configuration is the spec's, which may lack the unit."""
    return path == name or name.startswith(f"{path}.") or path == f"{name}_s"


def _beside_patch(view: RunView, attempt: AttemptRecord) -> Iterator[str]:
    _, finding, name, *_ = attempt.why.split(":")
    finding_record = view.record.findings.get(finding)
    for patch in finding_record.finding.patches if finding_record is not None else ():
        if patch.id == name:
            yield from (
                path for path, new in attempt.set.items() if patch.set.get(path, _NONE) != new
            )


def _who(attempt: AttemptRecord) -> tuple[str, str | None]:
    why = attempt.why
    if attempt.by is not None:
        return shown(attempt.by.encode()), why
    if why in _OPERATORS:
        return "operator", None
    if why.startswith(PATCH):
        *named, code = why.split(":")
        return ":".join(named), code
    return f"policy:{_POLICY.get(why, 'on_crash')}", why
