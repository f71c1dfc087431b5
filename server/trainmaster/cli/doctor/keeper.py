"""What `doctor` says of the keeper, and of the keys of those who rent out machines."""

from __future__ import annotations

import time
from collections.abc import Mapping

from trainer_runtime.core.protocol.command import command
from trainer_runtime.core.protocol.figures import in_utc, usd_text
from trainmaster.answers.checks import CheckRow, passed, warning
from trainmaster.errors.errors import StateError
from trainmaster.keeper import service
from trainmaster.runs.overview.volume_use import MONTH_H, unfinished_on, user_of
from trainmaster.settings.clouds import KEY_NAMES
from trainmaster.store.secret_values import where_kept
from trainmaster.sync.workspace import Workspace

_MOST_SHOWN = 500


async def keeping_checks(
    workspace: Workspace, environment: Mapping[str, str], *, of_providers: bool = True
) -> list[CheckRow]:
    """Whether the keeper runs, which providers could be asked, and what ends what is rented."""
    keeper = await _keeper(workspace, environment)
    keys = [_keys(workspace, environment)] if of_providers else []
    return [keeper, *keys, *_leases(workspace, keeper), *_volumes(workspace, keeper)]


def uses_providers(workspace: Workspace, environment: Mapping[str, str]) -> bool:
    """Whether this home has rented something, or has a provider's key."""
    try:
        kept = where_kept(workspace.home, KEY_NAMES.values(), environment)
    except StateError:  # which is worth a row
        return True
    rented = [*workspace.control.instances.all(), *workspace.control.volumes.all()]
    return bool(kept or rented)


def _leases(workspace: Workspace, keeper: CheckRow) -> list[CheckRow]:
    """Of each rented instance, what ends it at its lease's end beside `trainmaster release`."""
    rows, now = [], time.time()
    for instance in workspace.control.instances.all(only_open=True):
        armed = [
            *(["the keeper"] if keeper.state == "ok" else []),
            *(["its own timer"] if instance.can_self_terminate else []),
        ]
        name, end = f"lease of {instance.host}", in_utc(instance.lease_end_t)
        if instance.lease_end_t <= now:
            remedy = f"{command('release', instance.host)} ends it."
            rows.append(warning(name, f"ended {end}; the instance is still on record", remedy))
            continue
        if armed:
            rows.append(passed(name, f"until {end}, then ended by {' and '.join(armed)}"))
            continue
        problem = f"until {end}; nothing ends it without this machine. {instance.lease_timer}"
        rows.append(
            warning(name, problem, f"{command('keeper install')}, on a host that stays on.")
        )
    return rows


def _volumes(workspace: Workspace, keeper: CheckRow) -> list[CheckRow]:
    """Of each network volume, what it costs and until when."""
    rows = []
    for volume in workspace.control.volumes.all(only_open=True):
        name, until = f"volume {volume.name}", in_utc(volume.lease_end_t)
        costs = f"{usd_text(volume.usd_per_h * MONTH_H)} a month"
        user, unfinished = user_of(workspace, volume), unfinished_on(workspace, volume)
        if user is not None:
            rows.append(passed(name, f"{costs}; {user.host} uses it"))
        elif keeper.state == "ok" and not unfinished:
            rows.append(passed(name, f"{costs}, until {until}, then deleted by the keeper"))
        else:
            kept = f"it holds checkpoints of {', '.join(unfinished)}" if unfinished else "no keeper"
            problem = f"{costs}, unused; not deleted at {until}: {kept}"
            rows.append(warning(name, problem, f"{command('release', volume.name)} deletes it."))
    return rows


async def _keeper(workspace: Workspace, environment: Mapping[str, str]) -> CheckRow:
    state = await service.status(workspace, environment)
    if not state.installed:
        remedy = f"{command('keeper install')}: what is due is then done unattended, too."
        return warning("keeper", "not installed", remedy)
    last = (
        f"last tick {state.last_tick_at}, {state.last_tick}" if state.last_tick else "no tick yet"
    )
    failed = "; ".join(f"{name}: {why}" for name, why in (state.failed or {}).items())
    errors = f" ({failed[:_MOST_SHOWN]})" if failed else ""
    lacking = ", ".join(state.put_into_secrets_env or ())
    remedies = [
        *([state.next_step] if state.next_step else []),
        *([f"Put into {workspace.home.secrets_env}: {lacking}."] if lacking else []),
        *(state.hints or ()),
    ]
    return CheckRow(
        name="keeper",
        state="warn" if state.overdue or state.last_tick == "failed" or lacking else "ok",
        found=f"{state.by}, every {state.every}; {last}{errors}",
        remedy=" ".join(remedies) or None,
    )


def _keys(workspace: Workspace, environment: Mapping[str, str]) -> CheckRow:
    """Which variables are set, and where; never what they hold."""
    try:
        kept = where_kept(workspace.home, KEY_NAMES.values(), environment)
    except StateError as error:
        return warning("provider keys", error.message, error.fix)
    if kept:
        return passed("provider keys", ", ".join(f"{name} in {kept[name]}" for name in kept))
    names, file = ", ".join(KEY_NAMES.values()), workspace.home.secrets_env
    remedy = f"To rent machines, put one of {names} into {file} (mode 0600)."
    return warning("provider keys", "none", remedy)
