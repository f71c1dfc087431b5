"""Installs the keeper, removes it, and reports its state."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Literal

from trainer_runtime.core.protocol.command import command
from trainer_runtime.core.protocol.figures import in_utc
from trainmaster.alerts.destinations import destinations
from trainmaster.answers.keeper import KeeperAnswer
from trainmaster.errors.errors import HostError, StateError
from trainmaster.keeper.call import Call, parse_every, refuse_odd_paths
from trainmaster.keeper.cron import Crontab
from trainmaster.keeper.scheduler import Scheduler
from trainmaster.keeper.systemd import UserTimer
from trainmaster.settings.clouds import KEY_NAMES
from trainmaster.store.secret_values import stored_names
from trainmaster.sync.keeper_state import (
    NEVER,
    LastTick,
    is_ticking,
    keeper_problem,
    read_last_tick,
    record_installed,
    record_removed,
)
from trainmaster.sync.workspace import Workspace

DEFAULT_EVERY = "5m"
_EVERY = "--every"
_CACHES = frozenset({"archive-v0", "builds-v0", "environments-v2"})  # of uv
KAGGLE_KEYS = ("KAGGLE_API_TOKEN", "KAGGLE_USERNAME", "KAGGLE_KEY")


async def install(
    workspace: Workspace, environment: Mapping[str, str], *, every: str = DEFAULT_EVERY
) -> KeeperAnswer:
    """Install a timer that calls `trainmaster tick` for this home: by the user's systemd, or cron
    where there is none. May be repeated: the newest interval counts.

    Raises:
        UsageError: `BAD_ARGUMENT` for the interval, `UNSAFE_NAME`.
        HostError: `SCHEDULER_MISSING`, `SCHEDULER_REFUSED`.
    """
    call = _call(workspace, every)
    schedulers = _schedulers(workspace, environment)
    problems = await asyncio.to_thread(lambda: [scheduler.problem() for scheduler in schedulers])
    able = [scheduler for scheduler, why in zip(schedulers, problems, strict=True) if why is None]
    if not able:
        raise _missing([why or "" for why in problems])
    chosen, others = able[0], [scheduler for scheduler in schedulers if scheduler is not able[0]]
    await asyncio.to_thread(chosen.install, call)
    record_installed(workspace.home, call.every_minutes * 60.0)
    for other in others:
        if other in able:
            await asyncio.to_thread(other.remove)
    answer = await status(workspace, environment)
    return answer.model_copy(
        update={"next_step": f"Check after a while that it works: {command('keeper status')}."}
    )


async def text(
    workspace: Workspace, environment: Mapping[str, str], *, every: str = DEFAULT_EVERY
) -> KeeperAnswer:
    """The text that `install` would write, for systemd and for cron, to install by hand: on this
    machine or, with its own paths, on one that is always on. Changes nothing.

    Raises:
        UsageError: `BAD_ARGUMENT` for the interval, `UNSAFE_NAME`.
    """
    call = _call(workspace, every)
    wrote: dict[str, str] = {}
    for scheduler in _schedulers(workspace, environment):
        wrote |= scheduler.written(call)
    return KeeperAnswer(
        home=str(workspace.home.root),
        installed=False,
        every=call.every,
        wrote=wrote,
        put_into_secrets_env=lacking_keys(workspace, environment) or None,
        next_step="Nothing was written. One of the two is enough: units or the line of a crontab.",
    )


async def remove(workspace: Workspace, environment: Mapping[str, str]) -> KeeperAnswer:
    """Remove what `install` wrote for this home, and nothing else. May be repeated.

    Raises:
        HostError: `SCHEDULER_REFUSED`.
    """
    removed: list[str] = []
    for scheduler in _schedulers(workspace, environment):
        if scheduler.name == "cron" and scheduler.problem() is not None:
            continue  # without cron this home has no entry
        there = await asyncio.to_thread(scheduler.entries)
        await asyncio.to_thread(scheduler.remove)
        removed += there
    record_removed(workspace.home)
    return KeeperAnswer(home=str(workspace.home.root), installed=False, removed=removed)


async def status(workspace: Workspace, environment: Mapping[str, str]) -> KeeperAnswer:
    """Whether a keeper is installed, by which scheduler, its last tick, and any problem."""
    installed = await asyncio.to_thread(_installed, _schedulers(workspace, environment))
    ticked, now = read_last_tick(workspace.home), time.time()
    problem = keeper_problem(workspace.home, now)
    there = installed is not None
    return KeeperAnswer(
        home=str(workspace.home.root),
        installed=there,
        by=installed[0].name if installed else None,
        every=_every_in(installed[1]) if installed else None,
        wrote=installed[1] if installed else None,
        last_tick_at=in_utc(ticked.began_t) if ticked else None,
        last_tick=_outcome(workspace, ticked) if ticked else None,
        failed=(ticked.failed or None) if ticked else None,
        overdue=None if not there or problem == NEVER else problem is not None,
        put_into_secrets_env=lacking_keys(workspace, environment) or None,
        hints=(installed[0].hints() + _of_interpreter() or None) if installed else None,
        next_step=_next_step(there, problem, ticked),
    )


def _call(workspace: Workspace, every: str) -> Call:
    call = Call(sys.executable, workspace.home.root, parse_every(every))
    refuse_odd_paths(call)
    return call


def _schedulers(workspace: Workspace, environment: Mapping[str, str]) -> Sequence[Scheduler]:
    home = workspace.home.root
    return UserTimer(home, environment), Crontab(home, environment)


def _installed(schedulers: Sequence[Scheduler]) -> tuple[Scheduler, dict[str, str]] | None:
    for scheduler in schedulers:
        if scheduler.name == "systemd" or scheduler.problem() is None:
            entries = scheduler.entries()
            if entries:
                return scheduler, entries
    return None


def _every_in(entries: Mapping[str, str]) -> str | None:
    """The interval in an entry's command."""
    for entry in entries.values():
        words = entry.replace('"', " ").split()
        if _EVERY in words[:-1]:
            return words[words.index(_EVERY) + 1]
    return None


def _outcome(workspace: Workspace, ticked: LastTick) -> Literal["done", "failed", "at work"]:
    if ticked.ended_t is None:
        return "at work" if is_ticking(workspace.home) else "failed"
    return "failed" if ticked.failed else "done"


def _of_interpreter() -> list[str]:
    if not any(part in _CACHES for part in Path(sys.executable).parts):
        return []
    return [
        f"{sys.executable} lies in uv's cache, which uv may clear: `uv tool install trainmaster`, "
        "and install the keeper by that."
    ]


def _next_step(there: bool, problem: str | None, ticked: LastTick | None) -> str | None:
    if not there:
        return f"{command('keeper install')} has due work done on a timer."
    if problem == NEVER:
        return "It has not been called yet."
    if problem is not None:
        return "Find out why it is not called: the journal of the user's systemd, or cron's log."
    if ticked is not None and ticked.failed:
        return f"Run {command('tick')} to see whether it still fails; then {command('doctor')}."
    return None


def _missing(problems: Sequence[str]) -> HostError:
    return HostError(
        "SCHEDULER_MISSING",
        f"Nothing here can call the keeper: {'; '.join(problems)}.",
        f"Install cron (on Debian or Ubuntu: apt-get install cron), have {command('tick')} called "
        "every few minutes by another scheduler, or put what "
        f"{command('keeper install', '--print')} prints on a machine that is always on.",
    )


def lacking_keys(workspace: Workspace, environment: Mapping[str, str]) -> list[str]:
    """Variables that are in use here and do not stand in the home's secrets.env: those of the
    environment, and those of providers that something is rented from. Names alone, no values."""
    in_use = {name for name in (*KEY_NAMES.values(), *KAGGLE_KEYS) if environment.get(name)}
    in_use |= {name for name in _of_destinations(workspace) if environment.get(name)}
    control = workspace.control
    rented = {rental.provider for rental in control.instances.all(only_open=True)}
    rented |= {rental.provider for rental in control.volumes.all(only_open=True)}
    in_use |= {KEY_NAMES[name] for name in rented if name in KEY_NAMES}
    try:
        return sorted(in_use - stored_names(workspace.home))
    except StateError:
        return sorted(in_use)


def _of_destinations(workspace: Workspace) -> Iterable[str]:
    try:
        configured = destinations(workspace.home).values()
    except StateError:
        return []
    return [
        destination.url_secret for destination in configured if destination.url_secret is not None
    ]
