"""What a plan says of the work that only this machine will do for the run."""

from __future__ import annotations

import time

from trainer_runtime.core.alerts.condition import ConditionError, parse_condition
from trainer_runtime.core.config import ConfigDocument
from trainmaster.alerts.destinations import destinations, sender_of
from trainmaster.errors.errors import StateError
from trainmaster.plan.spec import TrainingSpec
from trainmaster.runs.status.unattended import ends_itself, needs_of, next_session, unattended
from trainmaster.sync.keeper_state import keeper_problem
from trainmaster.sync.mirrored_checkpoints import OPERATOR
from trainmaster.sync.workspace import Workspace


def unattended_plan(workspace: Workspace, spec: TrainingSpec, config: ConfigDocument) -> str | None:
    """The field `unattended` of a plan."""
    needs = needs_of(
        config["checkpoint"].get("mirror"),
        next_session(workspace, spec.host),
        ends_itself=ends_itself(workspace, spec.host),
        alerts=_will_send(workspace, spec),
    )
    return unattended(needs, keeper_problem(workspace.home, time.time()))


def _will_send(workspace: Workspace, spec: TrainingSpec) -> bool:
    """By default each destination is notified of a lost contact, which only the client can see."""
    try:
        by_name = destinations(workspace.home)
        if any(destination.defaults for destination in by_name.values()):
            return True
        return any(
            sender_of(by_name[alert.to], parse_condition(alert.when)) == OPERATOR
            for alert in spec.alerts
            if alert.to in by_name
        )
    except (StateError, ConditionError):
        return False  # the plan reports these errors
