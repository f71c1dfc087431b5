"""The status of a run."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from trainer_runtime.core.config.curriculum import Curriculum
from trainer_runtime.core.decoding import only_numbers
from trainer_runtime.core.policy.heartbeat import (
    HEARTBEAT_S,
    INGEST_EVERY_S,
    UNCONFIRMED_AFTER_S,
)
from trainer_runtime.core.protocol.figures import in_utc, rounded
from trainer_runtime.core.protocol.finding import as_evidence
from trainer_runtime.core.protocol.journal import AttemptRecord
from trainer_runtime.core.protocol.states import RunState
from trainer_runtime.core.status.eta import eta_s, step_age_s
from trainer_runtime.core.status.phase_state import phase_state
from trainmaster.answers.status import (
    CheckpointState,
    FindingRow,
    PhaseRow,
    PreparationState,
    RanksState,
    RehearsalState,
    SessionRow,
    StatusAnswer,
    TransferState,
)
from trainmaster.metrics.directions import PRIMARY_KEYS
from trainmaster.runs.diagnosis.diagnose_run import FoundOfRun, found_of, past_in_words
from trainmaster.runs.rehearsal.report import report_of
from trainmaster.runs.status.cost import cost_of
from trainmaster.runs.status.goodput import goodput_of
from trainmaster.runs.status.next_step import next_step
from trainmaster.runs.status.node_states import states_of_nodes
from trainmaster.runs.status.session_row import session_row
from trainmaster.runs.status.unattended import unattended_run
from trainmaster.store.run import Run
from trainmaster.sync.mirrored_checkpoints import mirrored_step
from trainmaster.sync.refresh import refresh
from trainmaster.sync.run_view import RunView
from trainmaster.sync.transfer_progress import AWAITED
from trainmaster.sync.workspace import Workspace

_HEADLINES = (
    *PRIMARY_KEYS,
    "lr",
    "grad_norm",
    "tokens_per_s",
    "step_time_s",
    "mfu",
)


async def get_status(workspace: Workspace, run: str, *, detail: bool = False) -> StatusAnswer:
    """The status of a run; `detail` adds risks, attempts, telemetry and the place of its files.

    Raises:
        StateError: `RUN_NOT_FOUND`.
    """
    return whole_status(workspace, await refresh(workspace, run), detail=detail)


def whole_status(workspace: Workspace, view: RunView, *, detail: bool = False) -> StatusAnswer:
    """The status of a run from its view, with its costs and what keeps it going."""
    status = status_of(view)
    if status.checkpoint is not None:
        status.checkpoint.mirrored_step = mirrored_step(workspace, view)
        status.checkpoint.untrusted_mirror_problem = view.record.mirror_problem
    status.cost = cost_of(workspace, view)
    status.goodput = goodput_of(workspace, view)
    status.unattended = unattended_run(workspace, view)
    if "rehearsal" in view.run.plan:
        _add_rehearsal(workspace, view, status)
    if not detail:
        return status
    from trainmaster.runs.status.status_detail import details  # most ask for none

    return status.model_copy(update=details(workspace, view, status.cost))


def _add_rehearsal(workspace: Workspace, view: RunView, status: StatusAnswer) -> None:
    report = report_of(workspace, view)
    failed = [
        f"{check.name}: {check.detail}. {check.remedy}"
        for check in report.checks
        if check.verdict == "failed"
    ]
    status.rehearsal = RehearsalState(
        of=report.of, verdict=report.verdict, failed=failed or None, launched=report.launched
    )
    if report.verdict is not None:
        status.next_step = report.next_step


def status_of(view: RunView, findings_of_run: Sequence[FoundOfRun] | None = None) -> StatusAnswer:
    """The status of a run from its view, in few words; with its findings, if already at hand."""
    progress, record = view.progress, view.record
    age = None if record.heartbeat_t is None else round(max(0.0, view.now - record.heartbeat_t), 1)
    findings_of_run = found_of(view) if findings_of_run is None else findings_of_run
    findings = [finding for finding in findings_of_run if not finding.over]
    last = only_numbers(progress.last) if progress else {}
    is_running = view.state is RunState.RUNNING
    curriculum = Curriculum.of(view.run.config) if is_running else None
    remaining = eta_s(progress, view.known_until, curriculum) if is_running else None
    step_age = step_age_s(progress, view.known_until) if is_running else None
    return StatusAnswer(
        run_id=view.run.run_id,
        name=view.run.name,
        state=view.state.value,
        reason=view.reason,
        untrusted_detail=view.detail,
        resumes_at=resumes_at(view),
        session=_session_row(view),
        host=view.run.host,
        nodes=states_of_nodes(view) or None,
        as_of=None if age is None else round(time.time() - age, 3),
        unreachable=view.unreachable,
        pending=None if view.delivered else True,
        heartbeat_age_s=None if view.ended else age,
        unconfirmed=True if _is_unconfirmed(view, age) else None,
        attempt=view.attempt,
        step=view.step,
        target_step=view.target_step,
        phase=_phase_row(view),
        step_age_s=None if step_age is None else round(step_age, 1),
        eta_s=None if remaining is None else round(remaining, 1),
        may_end_early=_early_end(view) if is_running else None,
        metrics={key: _rounded(last[key]) for key in _HEADLINES if key in last},
        ranks=RanksState.of(progress.ranks) if progress else None,
        findings=[FindingRow(id=f.id, code=f.code, severity=f.severity) for f in findings],
        past=past_in_words(view, findings_of_run),
        checkpoint=_checkpoint_state(view),
        code=_code(view.run),
        preparation=_preparation_state(view),
        transfer=_transfer_state(view),
        evidence=evidence_of(view),
        incomplete=view.incomplete,
        next_step=next_step(view, findings),
    )


def _early_end(view: RunView) -> str | None:
    rule = view.run.config.evaluation.early_stopping
    return None if rule is None else rule.words


def _phase_row(view: RunView) -> PhaseRow | None:
    phase = phase_state(view.run.config, view.attempts)
    if phase is None:
        return None
    return PhaseRow(
        name=phase.name,
        number=phase.number,
        count=phase.count,
        ends=phase.ends,
        verdicts=dict(phase.verdicts) or None,
    )


def _code(run: Run) -> str | None:
    """The commit of a program, or its digest where it has none."""
    script = run.document.get("script") or {}
    commit, digest = script.get("commit"), script.get("digest")
    if commit is None:
        return None if digest is None else f"sha256:{digest[:12]}"
    return f"{commit[:12]}{'+changes' if script.get('dirty') else ''}"


def _is_unconfirmed(view: RunView, age_s: float | None) -> bool:
    """Whether three heartbeats are missing, beyond those that may lie in the mirror alone; between
    sessions none is expected."""
    if view.ended or (view.sessions is not None and not view.sessions.runs):
        return False
    unheard_s = (age_s or 0.0) if view.sessions is None else view.silent_for_s
    return unheard_s > max(UNCONFIRMED_AFTER_S, INGEST_EVERY_S + 2 * HEARTBEAT_S)


def resumes_at(view: RunView) -> str | None:
    queued = view.sessions is not None and view.state is RunState.QUEUED
    return in_utc(view.sessions.resumes_at) if queued and view.sessions is not None else None


def _session_row(view: RunView) -> SessionRow | None:
    session = view.sessions.newest if view.sessions is not None else None
    if session is not None and view.ended:  # none runs, even where its place has not said so yet
        session = replace(session, ends_t=None)
    return None if session is None else session_row(session)


def _preparation_state(view: RunView) -> PreparationState | None:
    preparation = view.preparation
    if preparation is None or view.ended:
        return None
    return PreparationState(
        step=preparation.step.name if preparation.step else "starting",  # type: ignore[arg-type]
        seconds=round(max(0.0, view.now - preparation.since_t), 1),
        share=preparation.step.share if preparation.step else None,
    )


def evidence_of(view: RunView) -> list[str] | None:
    """The last line of a log that shows the state: of the preparation, or of a failure.

    The host masks secrets and sanitises it, and the mirror masks again; but a journal is a file
    of the host, so it is sanitised here too.
    """
    current = view.record.current
    if view.preparation is not None and view.preparation.line is not None and not view.ended:
        return [view.preparation.line]
    if view.state is not RunState.FAILED or current is None:
        return None
    return last_words_of(current)


def last_words_of(attempt: AttemptRecord) -> list[str] | None:
    """The last line that an attempt printed, as evidence."""
    if attempt.last_words is None:
        return None
    return list(as_evidence([attempt.last_words.encode(errors="replace")])) or None


def _rounded(value: Any) -> Any:
    return rounded(value) if isinstance(value, float) else value


def _checkpoint_state(view: RunView) -> CheckpointState | None:
    for entry in reversed(view.index.entries):
        if entry.verified and not view.run.cleaned:
            return CheckpointState(step=entry.step, age_s=round(view.now - entry.time, 1))
    return None


def _transfer_state(view: RunView) -> TransferState | None:
    progress = view.transfer
    if progress is None or (progress.what in AWAITED and view.ended):
        return None
    finished = progress.finished.get(progress.what, 0) >= view.awaited_attempt
    if progress.error is None and (finished or not progress.active):
        return None
    error = progress.error
    return TransferState(
        what=progress.what,
        done_bytes=progress.done_bytes,
        total_bytes=progress.total_bytes,
        bytes_per_s=progress.bytes_per_s,
        error=None if error is None else f"{error['code']}: {error['message']}",
    )
