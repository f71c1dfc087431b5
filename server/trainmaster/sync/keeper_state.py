"""When a tick last was and how it went: `keeper.json`, one small file that each tick replaces."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from trainer_runtime.core.files.durable import try_lock, write_atomic
from trainmaster.words.paths import Home

# So many intervals may pass without a tick: a machine may be busy, one tick may take long.
_PATIENCE = 3
NEVER = "no keeper is installed"


@dataclass(frozen=True, slots=True)
class Ticked:
    """The newest tick, by Unix time; `ended_t` is None for one that is at work, or was killed.

    `failed`: what could not be done, by run or box. `by_timer_t`: when the newest tick began that
    a timer has called, which does so every `every_s` seconds.
    """

    began_t: float
    ended_t: float | None = None
    failed: dict[str, str] = field(default_factory=dict)
    by_timer_t: float | None = None
    every_s: float | None = None


def read_ticked(home: Home) -> Ticked | None:
    """The newest tick; None where none ever was, or nothing of it can be read."""
    try:
        told: dict[str, Any] = json.loads(home.keeper_ticked.read_bytes())
        return Ticked(**{name: told[name] for name in Ticked.__dataclass_fields__ if name in told})
    except (OSError, ValueError, TypeError):
        return None


@contextmanager
def ticking(home: Home, every_s: float | None) -> Iterator[dict[str, str] | None]:
    """Hold the keeper's lock; None where another tick does. What is put into the mapping is on
    record as having failed, by what it concerns."""
    lock = try_lock(home.keeper_lock)
    if lock is None:
        yield None
        return
    try:
        before, now = read_ticked(home), time.time()
        told = Ticked(now, None, {}, now, every_s)
        if every_s is None:
            told = Ticked(now, None, {}, *_by_timer(before))
        _write(home, told)
        failed: dict[str, str] = {}
        yield failed
        _write(home, replace(told, ended_t=time.time(), failed=failed))
    finally:
        os.close(lock)


def keeper_problem(home: Home, now: float) -> str | None:
    """Why nobody keeps this home's runs while nobody looks; None where a timer does.

    Told by the ticks alone: asking systemd and cron takes too long for every answer.
    """
    heard_t, every_s = max(_installed(home), _called(home))
    if every_s <= 0:
        return NEVER
    if now - heard_t <= _PATIENCE * every_s:
        return None
    at = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(heard_t))
    return f"the keeper has not been at it since {at}"


def note_installed(home: Home, every_s: float) -> None:
    """A timer is to call from now on."""
    write_atomic(home.keeper_installed, f"{every_s:.0f}".encode())


def note_removed(home: Home) -> None:
    """No timer calls any more; may be repeated."""
    home.keeper_installed.unlink(missing_ok=True)
    ticked = read_ticked(home)
    if ticked is not None:
        _write(home, replace(ticked, by_timer_t=None, every_s=None))


def _installed(home: Home) -> tuple[float, float]:
    """When a keeper was installed, and every how many seconds it is to come; zeros for never."""
    try:
        return home.keeper_installed.stat().st_mtime, float(home.keeper_installed.read_text())
    except (OSError, ValueError):
        return 0.0, 0.0


def _called(home: Home) -> tuple[float, float]:
    ticked = read_ticked(home)
    return (ticked.by_timer_t or 0.0, ticked.every_s or 0.0) if ticked else (0.0, 0.0)


def _by_timer(before: Ticked | None) -> tuple[float | None, float | None]:
    return (None, None) if before is None else (before.by_timer_t, before.every_s)


def _write(home: Home, told: Ticked) -> None:
    write_atomic(home.keeper_ticked, json.dumps(asdict(told)).encode())
