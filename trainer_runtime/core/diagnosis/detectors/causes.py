"""Why a GPU waits or a run is slow, from step metrics and telemetry."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

# A healthy loader overlaps with the step: the remaining wait is a few per cent.
_DATA_SHARE = 0.15
_COMMUNICATION_SHARE = 0.30
_BUSY_PROCESSOR = 85.0
_BUSY_NETWORK_MIB_S = 50.0
HOT_C = 83.0  # cards throttle a few degrees above; well cooled they stay below 75
SLOW_CLOCK = 0.85


@dataclass(frozen=True, slots=True)
class Cause:
    """`name`: data_loading, communication, thermal, power, network or host."""

    name: str
    confidence: float


def waiting_cause(latest: Mapping[str, float], machine: Mapping[str, float]) -> Cause:
    """Why a GPU is idle. Measured shares of the step time take precedence over guesses.

    `latest`: the newest metrics; `machine`: telemetry, each key averaged over several minutes.
    """
    data, talk = latest.get("data_time_share", 0.0), latest.get("comm_time_share", 0.0)
    if data >= _DATA_SHARE and data >= talk:
        return Cause("data_loading", 0.9)
    if talk >= _COMMUNICATION_SHARE:
        return Cause("communication", 0.9)
    if machine.get("net_mib_s", 0.0) >= _BUSY_NETWORK_MIB_S:
        return Cause("network", 0.6)
    if machine.get("cpu_util", 0.0) >= _BUSY_PROCESSOR:
        known = "data_time_share" in latest
        return Cause("host" if known else "data_loading", 0.6)
    return Cause("host", 0.5)


def slowing_cause(machine: Mapping[str, float], best_clock_mhz: float) -> Cause | None:
    """Why a busy GPU is throttled; None where nothing indicates that it is."""
    hot = machine.get("gpu_temp_c", 0.0) >= HOT_C
    clock = machine.get("gpu_clock_mhz")
    slow = clock is not None and clock < SLOW_CLOCK * best_clock_mhz
    if machine.get("gpu_throttle", 0.0) < 0.5 and not (hot and slow):
        return None
    if hot:
        return Cause("thermal", 0.9)
    # At its power cap a card runs at full load by design; only a clock that fell is a loss.
    return Cause("power", 0.8) if slow else None
