"""Plans a run again that migrates to a cluster or away from one: what its jobs ask for, and where
its data and environment are."""

from __future__ import annotations

import json
from dataclasses import replace

from trainer_runtime.core.config.rehost import PLACEMENT, rehosted
from trainmaster.runs.planning.plan_run import plan_spec, refuse_unlaunchable
from trainmaster.store.run import Run
from trainmaster.sync.workspace import Workspace
from trainmaster.words.confirmation import Confirm
from trainmaster.words.errors import PlanError

_CLUSTER = "slurm"
# Planned for the old host; other numbers would give other losses.
_PINNED = ("gpus", "processes", "threads")


async def replanned(workspace: Workspace, run: Run, host: str, confirm: Confirm | None) -> Run:
    """The run with the config and the plan that it has on `host`; as it is between other hosts.

    Raises:
        PlanError: `DATA_CHANGED`, it would train on other data.
        TrainmasterError: the run can't train there.
    """
    if workspace.backend(host).launcher_name != _CLUSTER and _CLUSTER not in run.document:
        return run
    compute = run.document["compute"]
    pinned = [
        f"compute.{name}={json.dumps(compute[name])}"
        for name in _PINNED
        if compute.get(name) is not None
    ]
    planned = await plan_spec(workspace, f"{run.spec}\n", host, pinned, confirm=confirm)
    refuse_unlaunchable(planned)
    before, after = (config.get("data", {}) for config in (run.document, planned.config))
    if before.get("fingerprint") != after.get("fingerprint"):
        raise PlanError(
            "DATA_CHANGED",
            f"The data of {run.run_id} is not what {host} would be given now.",
            "Restore it, or launch a new run there.",
            field="data",
        )
    config = rehosted(run.document, {**planned.config, PLACEMENT: run.placement + 1})
    plan = {**planned.to_dict(), "requirements": list(planned.plan.requirements)}
    return replace(run, spec=planned.spec_text, document=config, plan=plan)
