"""Answers about runs from the database: state and metrics."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from trainer_runtime.core.decoding import only_numbers
from trainer_runtime.core.policy.heartbeat import UNCONFIRMED_AFTER_S
from trainer_runtime.core.protocol.duration import in_utc
from trainer_runtime.core.protocol.finding import as_evidence
from trainer_runtime.core.protocol.journal import AttemptRecord
from trainer_runtime.core.protocol.lines import finite_or_named
from trainer_runtime.core.protocol.states import RunState
from trainer_runtime.core.protocol.text import code_word
from trainer_runtime.core.status.eta import eta_s, step_age_s
from trainer_runtime.core.status.status_page import run_risks
from trainmaster.metrics.compare import compare_metrics
from trainmaster.metrics.log_file import log_file
from trainmaster.metrics.rank import ALL_RUNS, Among, rank_runs
from trainmaster.metrics.selection import EVERYTHING, Selection, bad_argument
from trainmaster.metrics.sources import PRIMARY_KEYS, FileSource, RunSource, Source, wanted_of_file
from trainmaster.runs.cost import cost_of
from trainmaster.runs.diagnosis.attempts import Started, started
from trainmaster.runs.diagnosis.diagnose_run import found_of, past_in_words
from trainmaster.runs.next_step import next_step
from trainmaster.runs.unattended import unattended_run
from trainmaster.sync.mirrored_checkpoints import mirrored_step
from trainmaster.sync.rebuild_state import incomplete
from trainmaster.sync.refresh import refresh
from trainmaster.sync.run_view import RunView
from trainmaster.sync.transfer_progress import AWAITED
from trainmaster.sync.workspace import Workspace
from trainmaster.words.answers.metrics import MetricsAnswer
from trainmaster.words.answers.runs import (
    AttemptRow,
    CheckpointState,
    FindingRow,
    PreparationState,
    RanksState,
    SessionRow,
    StatusAnswer,
    TransferState,
)

DEFAULT_POINTS = 20
MOST_RANKED = 6
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
    status.unattended = unattended_run(workspace, view)
    if not detail:
        return status
    return status.model_copy(
        update={
            "risks": _risks(view),
            "attempts": _attempt_rows(workspace, view),
            "telemetry": finite_or_named(only_numbers(view.record.telemetry)),
            "folder": workspace.control.folder(view.run),
        }
    )


async def query_metrics(
    workspace: Workspace,
    runs: Sequence[str],
    *,
    keys: Sequence[str] = (),
    points: int = DEFAULT_POINTS,
    everything: bool = False,
    part: Selection = EVERYTHING,
    within_s: float | None = None,
    among: Among = ALL_RUNS,
) -> MetricsAnswer:
    """Series of one or several runs, one value per step, the newest attempt's; or of log files,
    every point in order. Without any: the runs with the best values, of those in `among`, by
    groups that can be compared.

    `keys`: which metrics, `loss` and `val_loss` where none are named. At most `points` values each,
    means over buckets with their lows and highs; 0 are as many as a summary has room for.
    `everything` gives every step's own. At most `within_s` seconds are waited for each long file.

    Raises:
        StateError: `RUN_NOT_FOUND`.
        UsageError: `BAD_ARGUMENT` for a key that the run doesn't have, or an invalid range;
            `LOG_NOT_READABLE` for a file.
        StateError: `LOG_BEING_READ` for a long file.
    """
    from trainmaster.metrics.read_file import read_file  # with it comes the whole parser

    lacking = incomplete(workspace)
    if not runs:
        keys = keys or ("val_loss", "loss")
        ranked = rank_runs(workspace, keys, limit=points or MOST_RANKED, among=among)
        return ranked.model_copy(update={"incomplete": lacking})
    if among != ALL_RUNS:
        raise bad_argument("label", "Filters are for ranking runs.", "Leave them or the runs out.")
    sources: list[Source] = []
    for name in dict.fromkeys(runs):
        file = log_file(workspace, name)
        if file is not None:
            wanted = wanted_of_file(keys, part)
            found = await read_file(workspace.home, file, wanted, within_s=within_s)
            sources.append(FileSource(name, found, part))
        else:
            sources.append(RunSource(workspace, await refresh(workspace, name), name))
    answer = compare_metrics(sources, keys, None if everything else max(0, points), part)
    is_of_runs = any(isinstance(source, RunSource) for source in sources)
    return answer.model_copy(update={"incomplete": lacking}) if is_of_runs else answer


def status_of(view: RunView) -> StatusAnswer:
    """The status of a run from its view, in few words."""
    progress, record = view.progress, view.record
    age = None if record.heartbeat_t is None else round(max(0.0, view.now - record.heartbeat_t), 1)
    found = found_of(view)
    findings = [one for one in found if not one.over]
    last = only_numbers(progress.last) if progress else {}
    is_running = view.state is RunState.RUNNING
    remaining = eta_s(progress, view.known_until) if is_running else None
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
        as_of=None if age is None else round(time.time() - age, 3),
        unreachable=view.unreachable,
        pending=None if view.delivered else True,
        heartbeat_age_s=None if view.ended else age,
        unconfirmed=True if _is_unconfirmed(view, age) else None,
        attempt=view.attempt,
        step=view.step,
        target_step=view.target_step,
        step_age_s=None if step_age is None else round(step_age, 1),
        eta_s=None if remaining is None else round(remaining, 1),
        metrics={key: _rounded(last[key]) for key in _HEADLINES if key in last},
        ranks=RanksState.of(progress.ranks) if progress else None,
        findings=[FindingRow(id=f.id, code=f.code, severity=f.severity) for f in findings],
        past=past_in_words(view, found),
        checkpoint=_checkpoint_state(view),
        preparation=_preparation_state(view),
        transfer=_transfer_state(view),
        evidence=evidence_of(view),
        incomplete=view.incomplete,
        next_step=next_step(view, findings),
    )


def _is_unconfirmed(view: RunView, age_s: float | None) -> bool:
    """Whether three heartbeats are missing; between sessions none is expected."""
    if view.ended or (view.kernel is not None and not view.kernel.runs):
        return False
    unheard_s = (age_s or 0.0) if view.kernel is None else view.silent_for_s
    return unheard_s > UNCONFIRMED_AFTER_S


def resumes_at(view: RunView) -> str | None:
    queued = view.kernel is not None and view.state is RunState.QUEUED
    return in_utc(view.kernel.resumes_at) if queued and view.kernel is not None else None


def _session_row(view: RunView) -> SessionRow | None:
    session = view.kernel.session if view.kernel is not None else None
    if session is None:
        return None
    return SessionRow(
        number=session.number,
        ends_at=in_utc(session.deadline_t) if session.alive else None,
        outcome=session.outcome,
        untrusted_detail=session.detail,
    )


def _preparation_state(view: RunView) -> PreparationState | None:
    found = view.preparation
    if found is None or view.ended:
        return None
    return PreparationState(
        step=found.step.name if found.step else "starting",  # type: ignore[arg-type]
        seconds=round(max(0.0, view.now - found.since_t), 1),
        share=found.step.share if found.step else None,
    )


def evidence_of(view: RunView) -> list[str] | None:
    """The last line of a log that shows the state: of the preparation, or of a failure.

    The host masks secrets and sanitises it, and the mirror masks again; but a journal is a file
    of the host, so it is sanitised here too.
    """
    current = view.record.current
    if view.preparation is not None and view.preparation.line is not None and not view.ended:
        return [view.preparation.line]
    if view.state is not RunState.FAILED or current is None or current.last_words is None:
        return None
    return list(as_evidence([current.last_words.encode(errors="replace")])) or None


def _rounded(value: Any) -> Any:
    return float(f"{value:.6g}") if isinstance(value, float) else value


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


def _attempt_rows(workspace: Workspace, view: RunView) -> list[AttemptRow]:
    how = started(workspace, view)
    return [_attempt_row(attempt, how[attempt.number]) for attempt in view.record.attempts]


def _attempt_row(attempt: AttemptRecord, how: Started) -> AttemptRow:
    return AttemptRow(
        number=attempt.number,
        why=code_word(how.why or attempt.why),
        by=" ".join(map(code_word, how.by.split(" ", 1))),
        changed={path: list(values) for path, values in how.changes.items()} or None,
        changed_by_operator=list(how.by_operator) or None,
        started_at_step=attempt.started_at_step,
        last_step=attempt.last_step,
        reason=None if attempt.reason is None else code_word(attempt.reason),
        untrusted_detail=attempt.detail,
        set=attempt.set or None,
    )


def _risks(view: RunView) -> list[str] | None:
    found = run_risks(view.record, view.progress, view.index, view.run.config, view.now)
    return found or None
