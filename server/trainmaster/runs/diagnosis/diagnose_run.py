"""The findings of a run's host, and damaged checkpoints from the index."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from trainer_runtime.core.checkpoints.checkpoint_index import IndexEntry
from trainer_runtime.core.protocol.finding import (
    SEVERITIES,
    Finding,
    Severity,
    as_evidence,
    finding_id,
)
from trainer_runtime.core.status.past_findings import is_over, over_in_words
from trainmaster.runs.diagnosis.finding_names import is_named
from trainmaster.runs.diagnosis.refused_data import refused_data
from trainmaster.runs.diagnosis.tried_patches import tried_before, tried_patches
from trainmaster.sync.run_view import RunView

if TYPE_CHECKING:
    from trainmaster.answers.diagnosis import FindingAnswer

# Early signs follow the failure that they announced.
_ANNOUNCES = {"grad_norm_rising": {"loss_spike", "divergence", "nan_loss", "nan_grad"}}
# A named finding explains more.
_NAMELESS = "unknown_error"
# How a log ends says least about why.
_ENDS = "vanished"
Place = tuple[bool, int, bool]
_SAVE_FAILED = "checkpoint_failed"
REPORTED_BY_TRAINER = {
    "nan_loss": "The loss is NaN or infinite; the trainer's guard stopped the training.",
    "nan_grad": "The gradient is NaN or infinite; the trainer's guard stopped the training.",
    _SAVE_FAILED: "A checkpoint could not be saved or failed its verification.",
}
_BY_GUARD = "The trainer's guard reported it."
SAVE_ADVICE = ("Check the disk and the log; the previous checkpoint is intact.",)


@dataclass(frozen=True, slots=True)
class FoundOfRun:
    """A finding in its newest form, with its attempt.

    `tried`: the ids of patches that were applied for it before; it came again. `by_host`: its text
    is a host's.
    """

    attempt: int
    finding: Finding
    over: bool = False
    tried: frozenset[str] = frozenset()
    by_host: bool = False

    @property
    def id(self) -> str:
        return self.finding.id

    @property
    def code(self) -> str:
        return self.finding.code

    @property
    def severity(self) -> Severity:
        return self.finding.severity

    @property
    def patches(self) -> list[str]:
        """The ids of its patches that were not tried yet, best first."""
        return [patch.id for patch in self.finding.patches if patch.id not in self.tried]

    @property
    def is_exhausted(self) -> bool:
        """Whether it had patches, and all of them were tried."""
        return bool(self.finding.patches) and not self.patches

    def answer(self) -> FindingAnswer:
        from trainmaster.runs.diagnosis.finding_answer import finding_answer

        finding = self.finding
        if self.by_host:
            from trainmaster.runs.diagnosis.vetting import vetted_text

            explanation, advised = vetted_text(finding)
            finding = replace(finding, explanation=explanation, advice=advised)
        return finding_answer(finding, attempt=self.attempt, over=self.over, tried=self.tried)


def open_findings(view: RunView) -> list[FoundOfRun]:
    """The open findings of the newest attempt and of the checkpoints, causes first."""
    return [finding for finding in found_of(view) if not finding.over]


def past_in_words(view: RunView, findings: Sequence[FoundOfRun]) -> str | None:
    """What of `findings` is over, and what was changed after it; None where nothing is."""
    past = [
        (finding_of_run.attempt, finding_of_run.finding)
        for finding_of_run in findings
        if finding_of_run.over
    ]
    return over_in_words(past, view.record)


def found_of(view: RunView) -> list[FoundOfRun]:
    """All recorded findings: open ones first, then those over or of an earlier attempt.

    Causes come before what they led to, critical ones before warnings, else the earlier ones.
    """
    tried = tried_patches(view)
    findings = [
        replace(
            finding_of_run,
            tried=tried_before(tried, finding_of_run.code, finding_of_run.finding.step),
        )
        for finding_of_run in (
            *_by_host(view),
            *_by_trainer(view),
            *_damaged(view),
            *_refused(view),
        )
        if is_named(finding_of_run.finding)
    ]
    codes = {finding_of_run.code for finding_of_run in findings if not finding_of_run.over}
    symptoms = {
        code
        for finding_of_run in findings
        if not finding_of_run.over
        for code in finding_of_run.finding.led_to
    }
    return sorted(
        findings,
        key=lambda finding_of_run: place(
            finding_of_run.code,
            finding_of_run.severity,
            over=finding_of_run.over,
            codes=codes,
            symptoms=symptoms,
        ),
    )


def _by_host(view: RunView) -> Iterator[FoundOfRun]:
    for item in view.record.findings.values():
        if is_named(item.finding):
            from trainmaster.runs.diagnosis.vetting import vetted_patches  # and every remedy

            over = is_over(item, view.record, view.progress)
            finding = replace(item.finding, patches=vetted_patches(item.finding, view.run.document))
            yield FoundOfRun(item.attempt, finding, over, by_host=True)


def _by_trainer(view: RunView) -> Iterator[FoundOfRun]:
    """The guard's warnings that the host has not turned into findings."""
    for progress in view.attempts:
        verified = progress.verified_step or -1
        is_newest = progress is view.attempts[-1]
        for warning in progress.warnings:
            code, step = str(warning.code), warning.step
            if view.record.finding_of(progress.attempt, code, warning.t) is not None:
                continue
            over = not is_newest or (code == _SAVE_FAILED and (step or 0) < verified)
            severity: Severity = "warning" if code == _SAVE_FAILED else "critical"
            finding = Finding(
                id=finding_id(view.run.placement, progress.attempt, code, step),
                code=code,
                severity=severity,
                confidence=1.0,
                step=step,
                evidence=as_evidence([(warning.message or "").encode(errors="replace")]),
                explanation=REPORTED_BY_TRAINER.get(code, _BY_GUARD),
                advice=SAVE_ADVICE if code == _SAVE_FAILED else _advice(code),
            )
            yield FoundOfRun(progress.attempt, finding, over)


def _damaged(view: RunView) -> Iterator[FoundOfRun]:
    for entry in view.index.entries:
        if entry.verified is False:
            yield FoundOfRun(entry.attempt, _damage(view, entry))


def _refused(view: RunView) -> Iterator[FoundOfRun]:
    for finding in refused_data(view):
        yield FoundOfRun(view.attempt, finding)


def _damage(view: RunView, entry: IndexEntry) -> Finding:
    from trainer_runtime.core.diagnosis.signatures.explain import (
        explain,  # with it comes every signature
    )

    code = "checkpoint_corrupt"
    reasons = dict(view.index.skipped)
    return Finding(
        id=finding_id(view.run.placement, entry.attempt, code, entry.step),
        code=code,
        severity="warning",
        confidence=1.0,
        step=entry.step,
        evidence=as_evidence([reasons.get(entry.step, "").encode()]),
        explanation=explain(code, {}),
        advice=_advice(code),
    )


def _advice(code: str) -> tuple[str, ...]:
    from trainer_runtime.core.diagnosis.remedies import advice  # with it comes every remedy

    return advice(code)


def place(
    code: str, severity: Severity, *, over: bool, codes: Collection[str], symptoms: Collection[str]
) -> Place:
    """Sorts (stably) open findings first, then by severity, causes before symptoms.

    `codes` are all that are open, `symptoms` those that another one led to.
    """
    follows = code in symptoms or bool(_ANNOUNCES.get(code, set()) & set(codes))
    follows = follows or code in (_NAMELESS, _ENDS)
    return over, -SEVERITIES.index(severity), follows
