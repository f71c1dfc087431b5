"""What to do next, from a closed catalogue: never a word of the run's own."""

from __future__ import annotations

from collections.abc import Sequence

from trainer_runtime.core.states import RunState
from trainmaster.findings import Finding
from trainmaster.view import RunView

_BY_REASON = {
    "unusable": "Read the reason, mend the spec or the data, and launch anew.",
    "failed_before_first_step": "Read `trainmaster logs {run}`, mend the cause, then "
    "`trainmaster resume {run}`.",
    "max_restarts": "Read `trainmaster logs {run}`; after mending the cause, "
    "`trainmaster resume {run}`.",
    "nan": "Lower the learning rate: `trainmaster resume {run} --set optimizer.lr=...`.",
}


def next_step(view: RunView, findings: Sequence[Finding]) -> str:
    """One sentence that says what an operator or agent would do now."""
    run = view.run.run_id
    state = view.state
    if view.run.cleaned:
        return f"Cleaned: its files are gone, `trainmaster metrics {run}` still answers."
    if state is RunState.COMPLETED:
        return f"Done. `trainmaster fetch {run} final FOLDER` brings the model."
    if state is RunState.FAILED:
        general = "Read `trainmaster logs {run}`, then `trainmaster resume {run}`."
        return _BY_REASON.get(view.record.reason or "", general).format(run=run)
    if state is RunState.STOPPED and view.record.reason == "time_limit":
        return f"Its time is used up: `trainmaster resume {run} --set limits.max_runtime=12h`."
    if state is RunState.STOPPED:
        return f"`trainmaster resume {run}` goes on from the last checkpoint."
    if state is RunState.LOST or _is_removed(view):
        return _unheard(view)
    if not view.delivered:
        return "Its host has not been told yet: `trainmaster tick` tries again."
    if state is RunState.STOPPING:
        return f"Saving and ending. `trainmaster wait {run} --until end --timeout 600`."
    if any(finding.severity == "critical" for finding in findings):
        return f"It recovers by itself; look at `trainmaster logs {run}`, then wait for the end."
    return f"trainmaster wait {run} --until checkpoint,end --timeout 3600"


def _unheard(view: RunView) -> str:
    if _is_removed(view):
        again = f"`trainmaster hosts add {view.run.host} ADDRESS`"
        return f"Its host is not on record: {again} has the run found again."
    look = f"`trainmaster status {view.run.run_id}`"
    return f"The host is silent. `trainmaster tick` tries again; {look}."


def _is_removed(view: RunView) -> bool:
    return view.link_error is not None and view.link_error[0] == "HOST_UNKNOWN"
