"""When the last tick was and how it ended: `keeper.json`, replaced by every tick."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace

from trainer_runtime.core.decoding import DecodingError, JsonRecord, decode_fields
from trainer_runtime.core.files.durable import is_locked, lock_within, write_atomic
from trainer_runtime.core.protocol.figures import in_utc
from trainmaster.home.paths import Home

# Intervals without a tick before the keeper counts as overdue: a tick may take long.
_PATIENCE = 3
_LOCK_S = 0.2
NEVER = "no keeper is installed"


@dataclass(frozen=True, slots=True)
class LastTick(JsonRecord):
    """The newest tick, by Unix time; `ended_t` is None while it works, or if it was killed.

    `failed`: error messages by run or host. `by_timer_t`: when the newest tick that a timer
    called began; the timer calls every `every_s` seconds.
    """

    began_t: float
    ended_t: float | None = None
    failed: dict[str, str] = field(default_factory=dict)
    by_timer_t: float | None = None
    every_s: float | None = None


def read_last_tick(home: Home) -> LastTick | None:
    """The newest tick; None where there is none, or the file can't be read."""
    try:
        data = home.keeper_ticked.read_bytes()
        return LastTick.of(decode_fields(data, home.keeper_ticked.name))
    except (OSError, DecodingError):
        return None


def is_ticking(home: Home) -> bool:
    """Whether a tick is running now."""
    return is_locked(home.keeper_lock)


def record_failed(home: Home, failed: Mapping[str, str]) -> None:
    """Add failures to the newest tick, which another process is making."""
    ticked = read_last_tick(home)
    if failed and ticked is not None:
        _write(home, replace(ticked, failed={**ticked.failed, **failed}))


@contextmanager
def ticking(home: Home, every_s: float | None) -> Iterator[dict[str, str] | None]:
    """Hold the keeper's lock; yields None where another tick holds it. The caller puts failures
    into the mapping, by run or host."""
    lock = lock_within(home.keeper_lock, _LOCK_S)  # `is_ticking` holds it for a moment
    if lock is None:
        yield None
        return
    try:
        before, now = read_last_tick(home), time.time()
        tick = LastTick(now, None, {}, now, every_s)
        if every_s is None:
            tick = LastTick(now, None, {}, *_by_timer(before))
        _write(home, tick)
        failed: dict[str, str] = {}
        yield failed
        _write(home, replace(tick, ended_t=time.time(), failed=failed))
    finally:
        os.close(lock)


def keeper_problem(home: Home, now: float) -> str | None:
    """Why no timer maintains this home's runs; None where one does.

    Read from the ticks alone: asking systemd and cron takes too long for every answer.
    """
    heard_t, every_s = max(_installed(home), _called(home))
    if every_s <= 0:
        return NEVER
    if now - heard_t <= _PATIENCE * every_s:
        return None
    at = in_utc(heard_t)
    return f"the keeper has not run since {at}"


def record_installed(home: Home, every_s: float) -> None:
    """Record that a timer was installed."""
    write_atomic(home.keeper_installed, f"{every_s:.0f}".encode())


def record_removed(home: Home) -> None:
    """Record that no timer calls any more; may be repeated."""
    home.keeper_installed.unlink(missing_ok=True)
    ticked = read_last_tick(home)
    if ticked is not None:
        _write(home, replace(ticked, by_timer_t=None, every_s=None))


def _installed(home: Home) -> tuple[float, float]:
    """When a keeper was installed, and its interval in seconds; zeros for never."""
    try:
        return home.keeper_installed.stat().st_mtime, float(home.keeper_installed.read_text())
    except (OSError, ValueError):
        return 0.0, 0.0


def _called(home: Home) -> tuple[float, float]:
    ticked = read_last_tick(home)
    return (ticked.by_timer_t or 0.0, ticked.every_s or 0.0) if ticked else (0.0, 0.0)


def _by_timer(before: LastTick | None) -> tuple[float | None, float | None]:
    return (None, None) if before is None else (before.by_timer_t, before.every_s)


def _write(home: Home, tick: LastTick) -> None:
    write_atomic(home.keeper_ticked, json.dumps(asdict(tick)).encode())
