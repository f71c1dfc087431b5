"""What a resume changes because the host that it goes to is rented."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from trainmaster.plan.spec import NO_MIRROR
from trainmaster.runs.cost import spans_of, usd_of
from trainmaster.store.control.instances import RentedBox
from trainmaster.sync.run_view import RunView
from trainmaster.sync.workspace import Workspace
from trainmaster.words.errors import SpendError

_HOUR_S = 3600.0
_ALIKE_S = 1.0


def changes_on(
    workspace: Workspace, view: RunView, host: str, spec: str, changed: Mapping[str, Any]
) -> dict[str, Any]:
    """By dotted field, so that the run stays within its budget, and its checkpoints outlive the
    box. `spec` as it is from then on, `changed`: what the resume changes besides.

    Raises:
        SpendError: `SPEND_CAP`, the budget is used up.
    """
    box = workspace.control.boxes.of_host(host)
    if box is None:
        return {}
    return {**_limit_by_budget(workspace, view, box, changed), **_mirror(view, spec, changed)}


def _mirror(view: RunView, spec: str, changed: Mapping[str, Any]) -> dict[str, Any]:
    """A run that was planned for a host that stays has nowhere to send its checkpoints."""
    given = (json.loads(spec).get("checkpoint") or {}).get("mirror")
    known = changed.get("checkpoint.mirror", view.run.config["checkpoint"].get("mirror"))
    return {} if NO_MIRROR in (given, known) or known else {"checkpoint.mirror": "operator"}


def _limit_by_budget(
    workspace: Workspace, view: RunView, box: RentedBox, changed: Mapping[str, Any]
) -> dict[str, Any]:
    """Each box has its price, and what was spent on others counts."""
    limits = view.run.config.get("limits") or {}
    budget_usd = changed.get("limits.budget_usd", limits.get("budget_usd"))
    if budget_usd is None or not box.usd_per_h:
        return {}
    boxes = workspace.control.boxes.boxes()
    left_usd = budget_usd - usd_of(spans_of(workspace, view.run), boxes, view.now)
    if left_usd <= 0:
        raise SpendError(
            "SPEND_CAP",
            f"Run {view.run.run_id} has used up the {budget_usd:g} $ of limits.budget_usd.",
            "Allow more: `--set limits.budget_usd=…`; it counts from the first attempt on.",
            field="limits.budget_usd",
        )
    lived_s = sum(attempt.seconds(view.now) for attempt in view.record.attempts)
    bought_s = lived_s + left_usd / box.usd_per_h * _HOUR_S
    limit_s = changed.get("limits.max_runtime_s", limits.get("max_runtime_s"))
    is_within = limit_s is not None and limit_s <= bought_s + _ALIKE_S
    return {} if is_within else {"limits.max_runtime_s": bought_s}
