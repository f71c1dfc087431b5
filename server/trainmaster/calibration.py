"""What earlier runs on a host reached, for the estimates of the next plan."""

from __future__ import annotations

from trainer_runtime.core.protocol import number
from trainmaster.plan import Calibration, Throughput
from trainmaster.view import load_view
from trainmaster.workspace import Workspace

_NEWEST_RUNS = 20
# A run's first steps are slower than what follows.
_LEAST_STEPS = 20


def measured_on(workspace: Workspace, host: str) -> Calibration:
    """The throughput of the newest runs on a host, the newest first."""
    found = []
    for run in [run for run in workspace.control.runs() if run.host == host][:_NEWEST_RUNS]:
        progress = load_view(workspace, run.run_id).progress
        if progress is None or progress.steps_done < _LEAST_STEPS or not progress.step_time_s:
            continue
        tokens = number(progress.described.get("tokens_per_step"))
        flops = number(run.config["derived"]["flops_per_token"])
        if tokens is None or flops is None:
            continue
        found.append(
            Throughput(
                device=str(progress.described.get("device")),
                precision=str(progress.described.get("precision")),
                flops_per_s=tokens * flops / progress.step_time_s,
            )
        )
    return Calibration(measured=tuple(found))
