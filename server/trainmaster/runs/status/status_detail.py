"""What a status adds when it is asked for details."""

from __future__ import annotations

from itertools import zip_longest
from typing import Any

from trainer_runtime.core.config.curriculum import Curriculum
from trainer_runtime.core.decoding import only_numbers
from trainer_runtime.core.protocol.journal import AttemptRecord
from trainer_runtime.core.protocol.lines import finite_or_named
from trainer_runtime.core.protocol.text import code_word
from trainer_runtime.core.status.eta import eta_s
from trainer_runtime.core.status.risks import budget_risk
from trainer_runtime.core.status.status_page import run_risks
from trainmaster.answers.status import AttemptRow, RunCost, SessionRow
from trainmaster.runs.diagnosis.attempt_changes import Started, started
from trainmaster.runs.status.goodput import planned_figures
from trainmaster.runs.status.newest_samples import newest_samples
from trainmaster.runs.status.session_row import session_row
from trainmaster.sync.run_view import RunView
from trainmaster.sync.workspace import Workspace


def details(workspace: Workspace, view: RunView, cost: RunCost | None) -> dict[str, Any]:
    """Risks, attempts, telemetry, what was planned and the place of a run's files, by their fields
    of the answer."""
    return {
        "risks": _risks(view, cost),
        "attempts": _attempt_rows(workspace, view),
        "samples": newest_samples(workspace, view) or None,
        "telemetry": finite_or_named(only_numbers(view.record.telemetry)),
        "planned": planned_figures(view, cost) or None,
        "folder": workspace.control.folder(view.run),
    }


def _attempt_rows(workspace: Workspace, view: RunView) -> list[AttemptRow]:
    how = started(workspace, view)
    attempts = view.record.attempts
    begun = [attempt.starting_t for attempt in attempts[1:]]
    return [
        _attempt_row(view, attempt, how[attempt.number], _session(view, attempt, next_t))
        for attempt, next_t in zip_longest(attempts, begun)
    ]


def _session(view: RunView, attempt: AttemptRecord, next_t: float | None) -> SessionRow | None:
    """The session that an attempt ended with."""
    ended = attempt.ended_t is not None and view.sessions is not None
    session = (
        view.sessions.ended_with(attempt.starting_t, next_t) if ended and view.sessions else None
    )
    return None if session is None else session_row(session)


def _attempt_row(
    view: RunView, attempt: AttemptRecord, how: Started, session: SessionRow | None
) -> AttemptRow:
    return AttemptRow(
        number=attempt.number,
        why=code_word(how.why or attempt.why),
        by=" ".join(map(code_word, how.by.split(" ", 1))),
        changed={path: list(values) for path, values in how.changes.items()} or None,
        changed_by_operator=list(how.by_operator) or None,
        # The journal has it at the attempt's end, the trainer's events from its first step on.
        started_at_step=(
            view.started_at.get(attempt.number)
            if attempt.started_at_step is None
            else attempt.started_at_step
        ),
        last_step=attempt.last_step,
        reason=None if attempt.reason is None else code_word(attempt.reason),
        untrusted_detail=attempt.detail,
        session=session,
        set=attempt.set or None,
    )


def _risks(view: RunView, cost: RunCost | None) -> list[str] | None:
    config = view.run.config
    risks = run_risks(view.record, view.progress, view.index, config, view.now)
    left_s = eta_s(view.progress, None, Curriculum.of(config))
    if view.progress is None or left_s is None or view.ended:
        return risks or None
    if cost is not None and cost.usd_per_h and cost.budget_usd is not None:
        risk = budget_risk(view.progress, left_s, cost.usd, cost.usd_per_h, cost.budget_usd)
        risks += [] if risk is None else [risk]
    return risks or None
