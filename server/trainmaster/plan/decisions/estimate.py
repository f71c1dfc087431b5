"""Estimates the duration and cost of the training."""

from __future__ import annotations

from typing import Any

from trainer_runtime.core.protocol.figures import in_utc, rounded
from trainmaster.plan.decisions.memory import Memory
from trainmaster.plan.decisions.session_calendar import Calendar
from trainmaster.plan.decisions.throughput import Throughput
from trainmaster.plan.decisions.traced_memory import TRACE
from trainmaster.plan.facts import HostFacts
from trainmaster.plan.result import Estimates

HOUR_S = 3600.0


def hours_of(total_tokens: int, speed: Throughput | None) -> float | None:
    """Hours of computing, where the speed can be estimated."""
    return None if speed is None else total_tokens / speed.tokens_per_s / HOUR_S


def hours_within(total_tokens: int, speed: Throughput | None) -> tuple[float, float] | None:
    """The lower and upper bound of the expected hours."""
    if speed is None:
        return None
    return total_tokens / speed.high / HOUR_S, total_tokens / speed.low / HOUR_S


def estimates(
    sizes: dict[str, Any],
    memory: Memory | None,
    total_tokens: int,
    speed: Throughput | None,
    facts: HostFacts,
    *,
    sessions: Calendar | None = None,
    is_traced: bool = False,
) -> Estimates:
    """All estimates; `sizes` are `parameters`, `trained_parameters` and `disk_gib`, `sessions` the
    calendar of a host with sessions; `is_traced`: the memory is a trace's."""
    ranges = {}
    if is_traced:
        sizes["memory_source"] = TRACE
    if memory is not None:
        sizes["memory_gib"] = round(memory.total_gib, 2)
        low, high = memory.range_gib
        ranges["memory_gib"] = (_digits(low), _digits(high))
    hours, within = hours_of(total_tokens, speed), hours_within(total_tokens, speed)
    if speed is None or hours is None or within is None:
        return Estimates(**sizes, ranges=ranges)
    shortest, longest = within
    ranges["tokens_per_s"] = (_digits(speed.low), _digits(speed.high))
    ranges["hours"] = (_digits(shortest), _digits(longest))
    price = facts.usd_per_hour
    if price is not None:
        ranges["usd"] = (_digits(shortest * price), _digits(longest * price))
    return Estimates(
        **sizes,
        tokens_per_s=_digits(speed.tokens_per_s),
        mfu=None if speed.mfu is None else round(speed.mfu, 3),
        hours=_digits(hours),
        usd=None if price is None else _digits(hours * price),
        finish_at=_finish_at(facts, hours, sessions),
        sessions=None if sessions is None else sessions.sessions,
        ranges=ranges,
    )


def _finish_at(facts: HostFacts, hours: float, sessions: Calendar | None) -> str | None:
    if sessions is not None:
        return in_utc(sessions.finish_t)
    if facts.measured_at is None or facts.sessions is not None:
        return None
    return in_utc(facts.measured_at + hours * HOUR_S)


def _digits(value: float) -> float:
    """Three significant digits: estimates are not more precise."""
    return rounded(value, 3)
