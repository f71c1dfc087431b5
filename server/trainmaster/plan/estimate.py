"""How long and how dear the training will be."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from trainmaster.plan.facts import HostFacts
from trainmaster.plan.result import Estimates
from trainmaster.plan.throughput import Throughput

HOUR_S = 3600.0


def hours_of(total_tokens: int, speed: Throughput | None) -> float | None:
    """Hours of computing, where the speed can be estimated."""
    return None if speed is None else total_tokens / speed.tokens_per_s / HOUR_S


def estimates(
    sizes: dict[str, Any], total_tokens: int, speed: Throughput | None, facts: HostFacts
) -> Estimates:
    """All estimates; `sizes` are `parameters`, `memory_gib` and `disk_gib`."""
    hours = hours_of(total_tokens, speed)
    if speed is None or hours is None:
        return Estimates(**sizes)
    longest, shortest = (hours * speed.tokens_per_s / rate for rate in (speed.low, speed.high))
    ranges = {
        "tokens_per_s": (_digits(speed.low), _digits(speed.high)),
        "hours": (_digits(shortest), _digits(longest)),
    }
    price = facts.usd_per_hour
    if price is not None:
        ranges["usd"] = (_digits(shortest * price), _digits(longest * price))
    return Estimates(
        **sizes,
        tokens_per_s=_digits(speed.tokens_per_s),
        mfu=None if speed.mfu is None else round(speed.mfu, 3),
        hours=_digits(hours),
        usd=None if price is None else _digits(hours * price),
        finish_at=_finish_at(facts.measured_at, hours),
        ranges=ranges,
    )


def _finish_at(now: float | None, hours: float) -> str | None:
    if now is None:
        return None
    return datetime.fromtimestamp(now + hours * HOUR_S, UTC).isoformat(timespec="seconds")


def _digits(value: float) -> float:
    """Three digits: more would promise what no estimate holds."""
    return float(f"{value:.3g}")
