"""Costs of renting so far, and committed costs: by instance and by run, and orphans."""

from __future__ import annotations

import time

from trainer_runtime.core.protocol.figures import in_utc
from trainmaster.answers.rentals import CostsAnswer, InstanceRow, ReconcileAnswer
from trainmaster.machines.renting.instance_answers import reason_of
from trainmaster.runs.overview.volume_use import volume_rows
from trainmaster.runs.status.cost import all_rented, committed_usd, spans_of, spent_usd, usd_of
from trainmaster.settings.settings import read_settings
from trainmaster.store.control.instances import RentedInstance
from trainmaster.store.failures import Failures
from trainmaster.sync.workspace import Workspace


async def list_costs(
    workspace: Workspace, reconciled: ReconcileAnswer | None = None
) -> CostsAnswer:
    """The instances on record, open ones first, and the runs that were on them. Only reads.

    `reconciled`: what `reconcile` has just read at the providers, which is listed with them.
    """
    now = time.time()
    instances = workspace.control.instances.all()
    shown = [rental for rental in instances if rental.open or spent_usd(rental, now) > 0]
    shown.sort(key=lambda rental: (not rental.open, -rental.intended_t))
    failures, runs = Failures(workspace.home), dict[str, float]()
    for run in workspace.control.runs() if instances else ():
        if any(instance.host == run.host for instance in instances):
            with failures.caught(run.run_id):
                usd = usd_of(spans_of(workspace, run), instances, now)
                runs[run.run_id] = round(usd, 4)
    rented = all_rented(workspace)
    return CostsAnswer(
        spent_usd=round(sum(spent_usd(rental, now) for rental in rented), 4),
        committed_usd=round(sum(committed_usd(rental, now) for rental in rented), 4),
        max_usd_total=read_settings(workspace.home).max_usd_total,
        instances=[_row(rental, now) for rental in shown],
        volumes=volume_rows(workspace) or None,
        runs={run_id: usd for run_id, usd in runs.items() if usd > 0},
        orphans=reconciled.orphans if reconciled else None,
        not_asked=reconciled.not_asked if reconciled else None,
        failed=failures.rows,
        next_step=reconciled.next_step if reconciled else None,
    )


def _row(instance: RentedInstance, now: float) -> InstanceRow:
    return InstanceRow(
        instance=instance.tag,
        host=instance.host,
        provider=instance.provider,
        state=instance.state.value,
        usd_per_h=round(instance.usd_per_h, 4),
        spent_usd=round(spent_usd(instance, now), 4),
        budget_usd=round(instance.budget_usd, 2),
        lease_ends_at=in_utc(instance.lease_end_t),
        ended_at=in_utc(instance.ended_t),
        keep=instance.keep,
        reason=reason_of(instance),
    )
