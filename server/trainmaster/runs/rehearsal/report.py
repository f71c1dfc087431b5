"""The report of a rehearsal, from what its run has on record."""

from __future__ import annotations

from trainer_runtime.core.protocol.command import command
from trainer_runtime.core.protocol.finding import as_evidence
from trainer_runtime.core.protocol.states import RunState
from trainmaster.answers.rehearsal import RehearsalAnswer, Verdict
from trainmaster.errors.errors import UsageError
from trainmaster.metrics.run_series import attempt_points
from trainmaster.runs.diagnosis.diagnose_run import open_findings
from trainmaster.runs.rehearsal.judge import Rehearsed, judge, verdict_of
from trainmaster.store.control.idempotency import IdempotencyKey
from trainmaster.store.run import Run
from trainmaster.sync.refresh import refresh
from trainmaster.sync.run_view import RunView
from trainmaster.sync.workspace import Workspace

_KEYS = ("loss", "grad_norm", "lr", "peak_memory_gib", "tokens_per_s")


async def report_rehearsal(workspace: Workspace, run: str) -> RehearsalAnswer:
    """The report of a rehearsal; without a verdict while it runs.

    Raises:
        StateError: `RUN_NOT_FOUND`.
        UsageError: `BAD_ARGUMENT`, the run is not a rehearsal.
    """
    return report_of(workspace, await refresh(workspace, run))


def report_of(workspace: Workspace, view: RunView) -> RehearsalAnswer:
    """The same of a view."""
    run = view.run
    record = run.plan.get("rehearsal")
    if record is None:
        raise UsageError(
            "BAD_ARGUMENT",
            f"{run.run_id} is not a rehearsal.",
            f"Start one: {command('rehearse', 'SPEC')}.",
        )
    is_over = view.ended and not view.request_pending
    checks = judge(_rehearsed(workspace, view)) if is_over else []
    verdict: Verdict | None = verdict_of(checks) if checks else None
    launched = workspace.control.keys.result(key_of(run))
    if view.state is RunState.STOPPED and verdict == "passed":
        verdict = "not judged"  # somebody ended it before its last step
    return RehearsalAnswer(
        run_id=run.run_id,
        of=record["of"],
        kind=record["kind"],
        host=run.host,
        state=view.state.value,
        steps=run.config.steps,
        verdict=verdict,
        checks=checks,
        evidence=_evidence(view) if verdict == "failed" else None,
        launched=launched,
        next_step=_next_step(run, verdict, launched),
    )


def key_of(run: Run) -> IdempotencyKey:
    """The key under which the training that follows a rehearsal is launched: once."""
    return IdempotencyKey(f"rehearsed {run.run_id}", "launch", run.run_id)


def _rehearsed(workspace: Workspace, view: RunView) -> Rehearsed:
    record = view.run.plan["rehearsal"]
    completed = view.state is RunState.COMPLETED
    failure, remedy = (None, None) if completed else _failure(view)
    return Rehearsed(
        config=view.run.config,
        kind=record["kind"],
        completed=completed,
        attempts=view.attempts,
        values={key: attempt_points(workspace, view.run.run_id, key) for key in _KEYS},
        estimates=record["estimates"],
        failure=failure,
        remedy=remedy,
    )


def _failure(view: RunView) -> tuple[str, str]:
    """Why it failed, and what to do, by its first finding that is critical."""
    causes = [finding.answer() for finding in open_findings(view) if finding.severity == "critical"]
    if causes:
        cause = causes[0]
        return f"{cause.code}: {cause.explanation}", " ".join(cause.advice)
    logs = command("logs", view.run.run_id)
    reason = f"reason {view.reason}" if view.reason else ""
    return reason, f"Fix what its last words name; {logs} shows what came before."


def _evidence(view: RunView) -> list[str] | None:
    current = view.record.current
    words = (view.detail, None if current is None else current.last_words)
    if view.state is RunState.COMPLETED:
        return None
    return list(as_evidence([text.encode(errors="replace") for text in words if text])) or None


def _next_step(run: Run, verdict: Verdict | None, launched: str | None) -> str:
    record = run.plan["rehearsal"]
    if launched is not None:
        return f"{record['of']} has begun: {command('status', launched)}."
    if verdict is None:
        return f"{command('wait', run.run_id, '--until', 'end')}, then this report again."
    if verdict == "not judged":
        return "It was stopped before its last step: rehearse again."
    if verdict == "failed":
        what = "rehearse" if record["kind"] == "tiny" else "launch"
        options = () if record["kind"] == "tiny" else ("--smoke",)
        return (
            f"Follow the remedies, then {command(what, 'SPEC', *options)} again; "
            f"{command('diagnose', run.run_id)} and {command('logs', run.run_id)} show more."
        )
    if record["continues"]:
        return f"{record['of']} is launched by the next {command('tick')}."
    if record["kind"] == "tiny":
        return f"{command('launch', 'SPEC', '--smoke')} tries it at full size on its host."
    return f"{command('launch', 'SPEC')} starts the training."
