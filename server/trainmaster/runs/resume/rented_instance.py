"""Changes to a run's configuration when it resumes on a rented host."""

from __future__ import annotations

import json
from typing import Any

from trainer_runtime.core.config import ConfigChanges
from trainer_runtime.core.protocol.command import option
from trainer_runtime.core.protocol.figures import usd_text
from trainmaster.errors.errors import SpendError
from trainmaster.plan.spec import NO_MIRROR
from trainmaster.runs.status.cost import spans_of, usd_of
from trainmaster.store.control.instances import RentedInstance
from trainmaster.sync.run_view import RunView
from trainmaster.sync.workspace import Workspace

_HOUR_S = 3600.0
_TOLERANCE_S = 1.0


def changes_on(
    workspace: Workspace, view: RunView, host: str, spec: str, changed: ConfigChanges
) -> dict[str, Any]:
    """By dotted field: a time limit for the rest of the budget, and a mirror for the checkpoints.
    `spec`: the new one; `changed`: the resume's other changes.

    Raises:
        SpendError: `SPEND_CAP`, the budget is used up.
    """
    instance = workspace.control.instances.by_host(host)
    if instance is None:
        return {}
    return {**_limit_by_budget(workspace, view, instance, changed), **_mirror(view, spec, changed)}


def _mirror(view: RunView, spec: str, changed: ConfigChanges) -> dict[str, Any]:
    """A run planned for an owned host may have no mirror for its checkpoints."""
    mirror = (json.loads(spec).get("checkpoint") or {}).get("mirror")
    current = changed.get("checkpoint.mirror", view.run.config.checkpoint.mirror)
    return {} if NO_MIRROR in (mirror, current) or current else {"checkpoint.mirror": "operator"}


def _limit_by_budget(
    workspace: Workspace, view: RunView, instance: RentedInstance, changed: ConfigChanges
) -> dict[str, Any]:
    """The rest of the budget, after the cost on earlier instances, at this instance's price."""
    limits = view.run.config.limits
    budget_usd = changed.get("limits.budget_usd", limits.budget_usd)
    if budget_usd is None or not instance.usd_per_h:
        return {}
    instances = workspace.control.instances.all()
    left_usd = budget_usd - usd_of(spans_of(workspace, view.run), instances, view.now)
    if left_usd <= 0:
        raise SpendError(
            "SPEND_CAP",
            f"Run {view.run.run_id} has used up the {usd_text(budget_usd)} of limits.budget_usd.",
            f"Raise it: {option('--set', 'limits.budget_usd=…')}; it counts from the "
            "first attempt.",
            field="limits.budget_usd",
        )
    lived_s = sum(attempt.seconds(view.now) for attempt in view.record.attempts)
    bought_s = lived_s + left_usd / instance.usd_per_h * _HOUR_S
    limit_s = changed.get("limits.max_runtime_s", limits.max_runtime_s)
    is_within = limit_s is not None and limit_s <= bought_s + _TOLERANCE_S
    return {} if is_within else {"limits.max_runtime_s": bought_s}
