"""Changes of a resume for a rented host: budget, and the checkpoint mirror."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from trainmaster.plan.spec import NO_MIRROR
from trainmaster.runs.cost import spans_of, usd_of
from trainmaster.store.control_instances import RentedBox
from trainmaster.sync.run_view import RunView
from trainmaster.sync.workspace import Workspace
from trainmaster.words.errors import SpendError

_HOUR_S = 3600.0
_ALIKE_S = 1.0


def changes_on(
    workspace: Workspace, view: RunView, host: str, spec: str, changed: Mapping[str, Any]
) -> dict[str, Any]:
    """By dotted field, so that the run stays within its budget, and its checkpoints outlive the
    instance. `spec`: the new spec; `changed`: the other changes of the resume.

    Raises:
        SpendError: `SPEND_CAP`, the budget is used up.
    """
    instance = workspace.control.boxes.of_host(host)
    if instance is None:
        return {}
    return {**_limit_by_budget(workspace, view, instance, changed), **_mirror(view, spec, changed)}


def _mirror(view: RunView, spec: str, changed: Mapping[str, Any]) -> dict[str, Any]:
    """A run planned for a permanent host names no mirror for its checkpoints."""
    given = (json.loads(spec).get("checkpoint") or {}).get("mirror")
    known = changed.get("checkpoint.mirror", view.run.config.checkpoint.mirror)
    return {} if NO_MIRROR in (given, known) or known else {"checkpoint.mirror": "operator"}


def _limit_by_budget(
    workspace: Workspace, view: RunView, instance: RentedBox, changed: Mapping[str, Any]
) -> dict[str, Any]:
    """Limit by the remaining budget: each instance has its price, and earlier cost counts."""
    budget_usd = changed.get("limits.budget_usd", view.run.config.limits.budget_usd)
    if budget_usd is None or not instance.usd_per_h:
        return {}
    instances = workspace.control.boxes.boxes()
    left_usd = budget_usd - usd_of(spans_of(workspace, view.run), instances, view.now)
    if left_usd <= 0:
        raise SpendError(
            "SPEND_CAP",
            f"Run {view.run.run_id} has used up the {budget_usd:g} $ of limits.budget_usd.",
            "Allow more: `--set limits.budget_usd=…`; it counts from the first attempt on.",
            field="limits.budget_usd",
        )
    lived_s = sum(attempt.seconds(view.now) for attempt in view.record.attempts)
    bought_s = lived_s + left_usd / instance.usd_per_h * _HOUR_S
    limit_s = changed.get("limits.max_runtime_s", view.run.config.limits.max_runtime_s)
    is_within = limit_s is not None and limit_s <= bought_s + _ALIKE_S
    return {} if is_within else {"limits.max_runtime_s": bought_s}
