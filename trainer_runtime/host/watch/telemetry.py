"""Samples the machine: processor, memory, disk, network, GPUs where nvidia-smi answers."""

from __future__ import annotations

import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

GIB = 2.0**30
MIB = 2.0**20
_GPU_FIELDS = {
    "utilization.gpu": ("gpu_util", 1.0),
    "memory.used": ("gpu_mem_gib", 1 / 1024),
    "power.draw": ("gpu_power_w", 1.0),
    "temperature.gpu": ("gpu_temp_c", 1.0),
    "clocks.sm": ("gpu_clock_mhz", 1.0),
}
# Bits of clocks_throttle_reasons.active that slow a busy GPU down: power cap, hardware slowdown,
# sync boost, software and hardware thermal slowdown, power brake. Idle and applied clocks do not.
_THROTTLE_BITS = 0x4 | 0x8 | 0x10 | 0x20 | 0x40 | 0x80


@dataclass(slots=True)
class _Counters:
    time_s: float
    busy_ticks: int
    all_ticks: int
    network_bytes: int


class Telemetry:
    """Samples of the machine; rates are means since the sample before.

    A GPU query runs beside the caller, which gets its answer with the next sample: a driver that
    hangs must not hang the supervisor.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._before: _Counters | None = None
        self._query: subprocess.Popen[bytes] | None = None
        self._gpu: dict[str, Any] = {}
        self._has_gpu = shutil.which("nvidia-smi") is not None

    def sample(self, now: float) -> dict[str, Any]:
        """Metric keys of DESIGN §2 to their values; what can't be read is left out."""
        values: dict[str, Any] = {
            "host_mem_gib": _memory_used_gib(),
            "disk_free_gib": round(shutil.disk_usage(self._folder).free / GIB, 3),
            **self._rates(now),
            **self._gpus(),
        }
        return {key: value for key, value in values.items() if value is not None}

    def close(self) -> None:
        if self._query is not None and self._query.poll() is None:
            self._query.kill()

    def _rates(self, now: float) -> dict[str, float]:
        counters = _read_counters(now)
        before, self._before = self._before, counters
        if before is None or now <= before.time_s or counters.all_ticks <= before.all_ticks:
            return {}
        busy = counters.busy_ticks - before.busy_ticks
        network = counters.network_bytes - before.network_bytes
        return {
            "cpu_util": round(100.0 * busy / (counters.all_ticks - before.all_ticks), 1),
            "net_mib_s": round(max(0, network) / (now - before.time_s) / MIB, 3),
        }

    def _gpus(self) -> dict[str, Any]:
        if not self._has_gpu:
            return {}
        if self._query is not None and self._query.poll() is not None:
            output = self._query.stdout.read() if self._query.stdout else b""
            self._gpu = parse_gpus(output.decode(errors="replace"))
            self._query = None
        if self._query is None:
            self._query = start_gpu_query()
        return self._gpu


def parse_gpus(output: str) -> dict[str, Any]:
    """`<key>/<index>` from nvidia-smi's comma-separated rows, and `<key>` as the GPUs' mean."""
    values: dict[str, Any] = {}
    sums: dict[str, list[float]] = {}
    for row in output.splitlines():
        cells = [cell.strip() for cell in row.split(",")]
        if len(cells) != len(_GPU_FIELDS) + 2 or not cells[0].isdigit():
            continue
        for cell, (key, factor) in zip(cells[1:-1], _GPU_FIELDS.values(), strict=False):
            try:
                value = float(cell) * factor
            except ValueError:  # "[N/A]" where a card doesn't report it
                continue
            values[f"{key}/{cells[0]}"] = round(value, 3)
            sums.setdefault(key, []).append(value)
        throttled = _throttled(cells[-1])
        if throttled is not None:
            values[f"gpu_throttle/{cells[0]}"] = throttled
            sums.setdefault("gpu_throttle", []).append(throttled)
    means = {key: round(sum(readings) / len(readings), 3) for key, readings in sums.items()}
    return {**means, **values}


def _throttled(cell: str) -> float | None:
    try:
        return float(bool(int(cell, 16) & _THROTTLE_BITS))
    except ValueError:
        return None


def start_gpu_query() -> subprocess.Popen[bytes] | None:
    """nvidia-smi, asked for what `parse_gpus` reads; None where there is none."""
    query = ",".join(["index", *_GPU_FIELDS, "clocks_throttle_reasons.active"])
    try:
        return subprocess.Popen(
            ["nvidia-smi", f"--query-gpu={query}", "--format=csv,noheader,nounits"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
    except OSError:
        return None


def _read_counters(now: float) -> _Counters:
    ticks = [int(field) for field in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
    idle = ticks[3] + ticks[4]
    return _Counters(now, sum(ticks) - idle, sum(ticks), _network_bytes())


def _network_bytes() -> int:
    total = 0
    for line in Path("/proc/net/dev").read_text().splitlines()[2:]:
        name, _, counters = line.partition(":")
        if name.strip() != "lo":
            fields = counters.split()
            total += int(fields[0]) + int(fields[8])
    return total


def _memory_used_gib() -> float | None:
    """Memory in use by the cgroup where there is one with a limit, else by the machine."""
    current = Path("/sys/fs/cgroup/memory.current")
    limit = Path("/sys/fs/cgroup/memory.max")
    try:
        if limit.read_text().strip() != "max":
            return round(int(current.read_text()) / GIB, 3)
    except (OSError, ValueError):
        pass
    pages = os.sysconf("SC_PAGE_SIZE")
    try:
        meminfo = dict(
            line.split(":", 1) for line in Path("/proc/meminfo").read_text().splitlines()
        )
        available = int(meminfo["MemAvailable"].split()[0]) * 1024
    except (OSError, KeyError, ValueError):
        return None
    return round((os.sysconf("SC_PHYS_PAGES") * pages - available) / GIB, 3)
