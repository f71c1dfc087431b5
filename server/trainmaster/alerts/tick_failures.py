"""The message that the keeper's tick failed, for every destination that gets alerts by default."""

from __future__ import annotations

import os
from collections.abc import Mapping

from trainer_runtime.core.alerts.alert import alert_id
from trainer_runtime.core.protocol.alert_record import Message
from trainer_runtime.core.protocol.command import command
from trainmaster.alerts.destinations import destinations
from trainmaster.errors.advice import Face, for_face, shown_by
from trainmaster.errors.errors import StateError
from trainmaster.home.own_program import command_line
from trainmaster.sync.workspace import Workspace

NAME = "keeper-failed"
# A host that can't be reached is not a failure of the keeper: alerts on lost runs report it.
_CODES = frozenset(
    {
        "INTERNAL",
        "DATABASE_DAMAGED",
        "DISK_FULL",
        "ROOT_NOT_WRITABLE",
        "HOME_IS_NEWER",
        "HOME_OF_OTHER_VERSION",
    }
)
_PARTS = frozenset({"instances", "runs"})
_FACT = "keeper_failures"
_MOST_NAMED = 5


def fire_tick_failures(workspace: Workspace, failed: Mapping[str, str], now: float) -> None:
    """Record a message where something fails that did not fail in the last tick; sends nothing.

    `failed`: error messages by run, instance or part. Only names and codes are passed on.
    """
    named = {name: why.partition(":")[0] for name, why in failed.items()}
    pressing = {name: code for name, code in named.items() if name in _PARTS or code in _CODES}
    facts = workspace.control.facts
    before = set((facts.get(_FACT) or "").split())
    if set(pressing) == before:
        return
    facts.put(_FACT, " ".join(sorted(pressing)))
    if not set(pressing) - before:
        return
    try:
        by_name = destinations(workspace.home)
    except StateError:
        return  # unreadable settings; `doctor` reports them
    listed = ", ".join(f"{name} ({code})" for name, code in sorted(pressing.items())[:_MOST_NAMED])
    with shown_by(Face(command_line(os.environ))):  # of a shell that isn't the keeper's
        shown = for_face(command("keeper status"))
    text = f"The keeper's tick failed: {listed}. See, on this machine: {shown}"
    for to, destination in by_name.items():
        if destination.defaults:
            message_id = alert_id(NAME, to, str(now))
            message = Message(message_id, "", "", NAME, "critical", "", 0, text, round(now, 3))
            workspace.control.alerts.fire(message, to, now)
