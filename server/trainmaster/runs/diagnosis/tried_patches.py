"""The patches that a run was already resumed with, and failed again."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass

from trainer_runtime.core.protocol.journal import AttemptRecord
from trainmaster.sync.run_view import RunView

PATCH = "patch:"
_PARTS = 4  # patch:FINDING:PATCH:CODE
_NOT_FINITE = frozenset({"nan_loss", "nan_grad"})
_GUARD = "guard"  # what the journal calls a restart after either of them


@dataclass(frozen=True, slots=True)
class Tried:
    """A patch that an attempt was started with. `codes`: what it was for, `onset` the step that
    this had come at."""

    patch: str
    codes: Collection[str]
    onset: int


def tried_before(tried: Collection[Tried], code: str, onset: int | None) -> frozenset[str]:
    """The ids of the patches that were applied for `code` when it came no later than `onset`.

    Only for what a training does by itself: memory that was not enough may be halved again.
    """
    if not tried:
        return frozenset()
    from trainer_runtime.core.diagnosis.detectors.messages import CODES

    if code not in CODES or not CODES[code].announces_rewind:
        return frozenset()
    return frozenset(
        earlier.patch
        for earlier in tried
        if code in earlier.codes and (onset is None or earlier.onset <= onset)
    )


def tried_patches(view: RunView) -> list[Tried]:
    """The patches that policy and operator have applied so far, in order."""
    tried = []
    for before, attempt in zip(view.record.attempts, view.record.attempts[1:], strict=False):
        applied = _applied(attempt)
        if applied is not None:
            patch, codes, finding = applied
            tried.append(Tried(patch, codes, _onset(view, before, codes, finding)))
    return tried


def applied_patch(why: str) -> str | None:
    """`FINDING:PATCH` of a request's `why`; None where it was for no patch."""
    named = why.split(":")
    return f"{named[1]}:{named[2]}" if why.startswith(PATCH) and len(named) == _PARTS else None


def _applied(attempt: AttemptRecord) -> tuple[str, Collection[str], str | None] | None:
    """The patch that the attempt was started with, its reason, and its recorded finding."""
    if applied_patch(attempt.why) is not None:
        _, finding, patch, code = attempt.why.split(":")
        return patch, _alike(code), finding
    _, _, patch = (attempt.by or "").partition(" ")
    return (patch, _alike(attempt.why), None) if patch else None


def _alike(code: str) -> Collection[str]:
    return _NOT_FINITE if code == _GUARD or code in _NOT_FINITE else frozenset({code})


def _onset(
    view: RunView, before: AttemptRecord, codes: Collection[str], finding: str | None
) -> int:
    """The step that it came at in the attempt `before`; where unknown, that attempt's last."""
    return min(_onsets(view, before, codes, finding), default=before.last_step or 0)


def _onsets(
    view: RunView, before: AttemptRecord, codes: Collection[str], finding: str | None
) -> Iterator[int]:
    for id, item in view.record.findings.items():
        step = item.finding.step
        named = item.attempt == before.number and item.finding.code in codes
        if step is not None and (id == finding if finding is not None else named):
            yield step
    for progress in view.attempts:
        if finding is None and progress.attempt == before.number:
            for warning in progress.warnings:
                if warning.code in codes and warning.step is not None:
                    yield warning.step
