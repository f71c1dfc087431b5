"""Plans a run again: one that migrates to a cluster or away from one, what its jobs ask for and
where its data and environment are; one that stays on its cluster, what its jobs ask for."""

from __future__ import annotations

import json
from dataclasses import replace

from trainer_runtime.core.config.rehost import PLACEMENT, rehosted
from trainmaster.backends import JobRenewer
from trainmaster.errors.confirmation import Confirm
from trainmaster.errors.errors import PlanError
from trainmaster.home.assets import find_assets
from trainmaster.plan.planned import Planned, refuse_unlaunchable
from trainmaster.plan.render import render_recorded
from trainmaster.runs.planning.plan_run import on_record, plan_spec
from trainmaster.store.run import Run
from trainmaster.sync.workspace import Workspace

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
    planned = await _planned(workspace, run, host, confirm)
    before, after = (config.get("data", {}) for config in (run.document, planned.config))
    if before.get("fingerprint") != after.get("fingerprint"):
        raise PlanError(
            "DATA_CHANGED",
            f"The data of {run.run_id} is not what {host} would be given now.",
            "Restore it, or launch a new run there.",
            field="data",
        )
    config = rehosted(run.document, {**planned.config, PLACEMENT: run.placement + 1})
    return replace(run, spec=planned.spec_text, document=config, plan=on_record(planned))


async def with_new_job(workspace: Workspace, run: Run, confirm: Confirm | None) -> Run:
    """A run of a cluster whose jobs ask for what its host's options are now; as it is on any other
    host.

    Raises:
        TrainmasterError: the run can't train so.
    """
    if _CLUSTER not in run.document:
        return run
    planned = await _planned(workspace, run, run.host, confirm)
    job = dict(planned.config[_CLUSTER])
    if "array" in run.document[_CLUSTER]:
        job["array"] = run.document[_CLUSTER]["array"]
    return replace(run, document={**run.document, _CLUSTER: job})


async def renew_job(workspace: Workspace, run: Run) -> None:
    """Have a cluster's next jobs of the run ask for what its document says, and no more.

    Raises:
        HostError: Slurm refuses such a job. Nothing was changed.
    """
    script = render_recorded(run.document, run.plan, find_assets()).files["job.sh"]
    renewer = JobRenewer.of(workspace.backend(run.host))
    await renewer.renew_job(run.run_id, run.document[_CLUSTER], script)


def asks_for_another_job(before: Run, after: Run) -> bool:
    """Whether the run is at a cluster, and its jobs ask for something else."""
    return bool(before.document.get(_CLUSTER) != after.document.get(_CLUSTER))


async def _planned(workspace: Workspace, run: Run, host: str, confirm: Confirm | None) -> Planned:
    compute = run.document["compute"]
    pinned = [
        f"compute.{name}={json.dumps(compute[name])}"
        for name in _PINNED
        if compute.get(name) is not None
    ]
    planned = await plan_spec(workspace, f"{run.spec}\n", host, pinned, confirm=confirm)
    refuse_unlaunchable(planned)
    return planned
