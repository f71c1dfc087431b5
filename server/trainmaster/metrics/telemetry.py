"""Which metrics are measured by time instead of steps."""

from __future__ import annotations

# Sampled by the supervisor, and always drawn over minutes.
TELEMETRY = (
    "gpu_util",
    "gpu_mem_gib",
    "gpu_power_w",
    "gpu_temp_c",
    "gpu_clock_mhz",
    "gpu_throttle",
    "cpu_util",
    "host_mem_gib",
    "disk_free_gib",
    "net_mib_s",
)


def is_telemetry(key: str) -> bool:
    """Whether a key (`gpu_util`, `gpu_util/0`) is measured by time instead of steps."""
    return key.partition("/")[0] in TELEMETRY
