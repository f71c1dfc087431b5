"""What `doctor` says of the keeper, and of the keys of those who rent out machines."""

from __future__ import annotations

from collections.abc import Mapping

from trainmaster.keeper import service
from trainmaster.machines.clouds import KEY_NAMES
from trainmaster.store.secret_values import where_kept
from trainmaster.sync.workspace import Workspace
from trainmaster.words.answers.hosts import DoctorCheck
from trainmaster.words.errors import StateError


async def keeping_checks(workspace: Workspace, environment: Mapping[str, str]) -> list[DoctorCheck]:
    """Whether the keeper runs, and which providers could be asked."""
    return [await _keeper(workspace, environment), _keys(workspace, environment)]


async def _keeper(workspace: Workspace, environment: Mapping[str, str]) -> DoctorCheck:
    state = await service.status(workspace, environment)
    if not state.installed:
        return DoctorCheck(
            name="keeper",
            ok=False,
            found="not installed",
            remedy="`trainmaster keeper install`: what is due is then done unattended, too.",
            needed=False,
        )
    last = (
        f"last tick {state.last_tick_at}, {state.last_tick}" if state.last_tick else "no tick yet"
    )
    lacking = ", ".join(state.put_into_secrets_env or ())
    remedies = [
        *([state.next_step] if state.next_step else []),
        *([f"Put into {workspace.home.secrets_env}: {lacking}."] if lacking else []),
        *(state.hints or ()),
    ]
    return DoctorCheck(
        name="keeper",
        ok=not state.overdue and state.last_tick != "failed" and not lacking,
        found=f"{state.by}, every {state.every}; {last}",
        remedy=" ".join(remedies) or None,
        needed=False,
    )


def _keys(workspace: Workspace, environment: Mapping[str, str]) -> DoctorCheck:
    """Which variables are set, and where; never what they hold."""
    try:
        kept = where_kept(workspace.home, KEY_NAMES.values(), environment)
    except StateError as error:
        return DoctorCheck(
            name="provider keys", ok=False, found=error.message, remedy=error.fix, needed=False
        )
    return DoctorCheck(
        name="provider keys",
        ok=bool(kept),
        found=", ".join(f"{name} in {place}" for name, place in kept.items()) or "none",
        remedy=None
        if kept
        else f"To rent machines, put one of {', '.join(KEY_NAMES.values())} into "
        f"{workspace.home.secrets_env} (mode 0600).",
        needed=False,
    )
