"""Costs of renting so far, and committed costs: by instance and by run, and orphans."""

from __future__ import annotations

import time
from collections.abc import Mapping

from trainer_runtime.core.protocol.figures import in_utc
from trainer_runtime.core.status.reckoning import IDLE, TRAINING
from trainmaster.answers.rentals import CostsAnswer, InstanceRow, ReconcileAnswer
from trainmaster.machines.renting.instance_answers import reason_of
from trainmaster.runs.overview.volume_use import volume_rows
from trainmaster.runs.status.cost import (
    all_rented,
    committed_usd,
    spans_of,
    spent_usd,
    usd_by_cause,
    usd_of,
)
from trainmaster.runs.status.goodput import lost_of
from trainmaster.settings.settings import read_settings
from trainmaster.store.control.instances import RentedInstance
from trainmaster.store.failures import Failures
from trainmaster.sync.reckoning import reckoning_of
from trainmaster.sync.run_view import load_view
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
    spent_on: dict[str, dict[str, float]] = {rental.tag: {} for rental in shown}
    for run in workspace.control.runs() if instances else ():
        if any(instance.host == run.host for instance in instances):
            with failures.caught(run.run_id):
                spans = spans_of(workspace, run)
                runs[run.run_id] = round(usd_of(spans, instances, now), 4)
                reckoning = reckoning_of(load_view(workspace, run.run_id))
                for rental in shown:
                    usd = usd_by_cause(reckoning, spans, [rental], now)
                    _add(spent_on[rental.tag], usd)
    rented = all_rented(workspace)
    return CostsAnswer(
        spent_usd=round(sum(spent_usd(rental, now) for rental in rented), 4),
        committed_usd=round(sum(committed_usd(rental, now) for rental in rented), 4),
        max_usd_total=read_settings(workspace.home).max_usd_total,
        instances=[_row(rental, spent_on[rental.tag], now) for rental in shown],
        volumes=volume_rows(workspace) or None,
        runs={run_id: usd for run_id, usd in runs.items() if usd > 0},
        orphans=reconciled.orphans if reconciled else None,
        not_asked=reconciled.not_asked if reconciled else None,
        failed=failures.rows,
        next_step=reconciled.next_step if reconciled else None,
    )


def _add(total: dict[str, float], usd: Mapping[str, float]) -> None:
    for cause, amount in usd.items():
        total[cause] = total.get(cause, 0.0) + amount


def _row(instance: RentedInstance, usd: dict[str, float], now: float) -> InstanceRow:
    """`usd`: what was spent on the instance's runs, by cause; what is left of its cost was idle."""
    idle = spent_usd(instance, now) - sum(usd.values())
    by_cause = {**usd, IDLE: max(0.0, idle)}
    whole = sum(by_cause.values())
    return InstanceRow(
        instance=instance.tag,
        host=instance.host,
        provider=instance.provider,
        state=instance.state.value,
        usd_per_h=round(instance.usd_per_h, 4),
        spent_usd=round(spent_usd(instance, now), 4),
        training_share=round(by_cause.get(TRAINING, 0.0) / whole, 4) if whole > 0 else None,
        lost_usd=lost_of(by_cause) or None,
        budget_usd=round(instance.budget_usd, 2),
        lease_ends_at=in_utc(instance.lease_end_t),
        ended_at=in_utc(instance.ended_t),
        keep=instance.keep,
        reason=reason_of(instance),
    )
