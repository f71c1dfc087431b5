"""The goodput of a run: where its time and money went, and what its plan expected."""

from __future__ import annotations

from collections.abc import Mapping

from trainer_runtime.core.config.curriculum import Curriculum
from trainer_runtime.core.protocol.figures import rounded
from trainer_runtime.core.protocol.lines import number
from trainer_runtime.core.protocol.states import RunState
from trainer_runtime.core.status.eta import eta_s
from trainer_runtime.core.status.reckoning import TRAINING
from trainmaster.answers.status import Goodput, PlannedFigure, RunCost
from trainmaster.runs.status.cost import spans_of, usd_by_cause
from trainmaster.sync.reckoning import reckoning_of
from trainmaster.sync.run_view import RunView
from trainmaster.sync.workspace import Workspace

_HOUR_S = 3600.0
_LEAST_USD = 0.00005


def goodput_of(workspace: Workspace, view: RunView) -> Goodput | None:
    """None before anything has run."""
    reckoning = reckoning_of(view)
    if not view.record.attempts or reckoning.ettr is None:
        return None
    lost_usd = None
    instances = workspace.control.instances.all()
    if instances:
        usd = usd_by_cause(reckoning, spans_of(workspace, view.run), instances, view.now)
        lost_usd = lost_of(usd) or None
    return Goodput(
        ettr=round(reckoning.ettr, 4),
        elapsed_s=round(reckoning.elapsed_s, 1),
        lost_s={cause: rounded(seconds, 4) for cause, seconds in reckoning.lost_s.items()},
        lost_usd=lost_usd,
    )


def lost_of(usd: Mapping[str, float]) -> dict[str, float]:
    """Dollars by cause without those of training, the most first."""
    most_first = sorted(usd.items(), key=lambda item: -item[1])
    return {
        cause: round(amount, 4)
        for cause, amount in most_first
        if cause != TRAINING and amount >= _LEAST_USD
    }


def planned_figures(view: RunView, cost: RunCost | None) -> dict[str, PlannedFigure]:
    """What the plan expected beside what was measured; hours and dollars as they will be at the
    end, at the present pace."""
    estimates = view.run.plan.get("estimates") or {}
    seen = _seen(view, cost)
    return {
        key: PlannedFigure(
            planned=planned,
            seen=figure,
            source=estimates.get("memory_source") if key == "memory_gib" else None,
        )
        for key, figure in seen.items()
        if (planned := number(estimates.get(key))) is not None
    }


def _seen(view: RunView, cost: RunCost | None) -> dict[str, float]:
    progress = view.progress
    if progress is None:
        return {}
    seen: dict[str, float] = {}
    tokens = number(progress.described.get("tokens_per_step"))
    if tokens is not None and progress.step_time_s:
        seen["tokens_per_s"] = rounded(tokens / progress.step_time_s, 4)
    peak_gib = number(progress.last.get("peak_memory_gib"))
    if peak_gib is not None:
        seen["memory_gib"] = rounded(peak_gib, 4)
    left_s = (
        0.0 if view.ended else eta_s(progress, view.known_until, Curriculum.of(view.run.config))
    )
    if left_s is not None and (not view.ended or view.state is RunState.COMPLETED):
        seen["hours"] = rounded((reckoning_of(view).elapsed_s + left_s) / _HOUR_S, 4)
        if cost is not None:
            seen["usd"] = rounded(cost.usd + left_s / _HOUR_S * (cost.usd_per_h or 0.0), 4)
    return seen
