"""Memory use rises steadily: `memory_rising`, for the host and the GPUs.

A leak rises steadily for hours; loading, caches and the allocator's growth stop after a while. So
the first quarter of the attempt is left out, at least an hour must be observed, the rise must be
steady (Mann-Kendall z > 4.5), at least a tenth of the initial use (a twentieth on a GPU) and a GiB,
and in its second half not much slower than overall. The severity follows from the hours until
memory is full.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from trainer_runtime.core.diagnosis.detectors.detector import Code, Detector
from trainer_runtime.core.diagnosis.detectors.detector_context import DetectorContext
from trainer_runtime.core.diagnosis.detectors.trend import Trend, mann_kendall_z, median_slope

_MIN_H = 1.0
_MIN_BLOCKS = 16
_STEADY_Z = 4.5
_STILL = 0.6  # of the whole slope that the second half must keep
_SHARE = {"host_mem_gib": 0.10, "gpu_mem_gib": 0.05}
_MIN_GIB = 1.0
_SOON_H, _AT_ONCE_H = 24.0, 1.0


_CODES = {
    "memory_rising": Code(
        "Memory in use rises steadily.",
        (
            "{key} {now_gib}, rising by {gib_per_h} GiB per hour",
            "the limit of {limit_gib} GiB is reached in {hours_left} hours",
        ),
        ("The usual leak is values kept across steps (losses with their graph, caches).",),
    ),
}


@dataclass(slots=True)
class _Series:
    """The samples of one key, at first averaged over a minute."""

    key: str
    trend: Trend = field(default_factory=lambda: Trend(per_block=6))

    def sample(self, context: DetectorContext, t: float, values: Mapping[str, float]) -> None:
        """Take in a sample; of several GPUs the one that uses the most counts."""
        every = [value for name, value in values.items() if name.startswith(f"{self.key}/")]
        value = max(every, default=values.get(self.key))
        if value is None:
            return
        if context.steps_seen == 0 or context.finished:
            self.restart()
            return
        if not self.trend.add(t, value):
            return
        skipped = len(self.trend.xs) // 4
        xs, means = self.trend.xs[skipped:], self.trend.means[skipped:]
        if len(xs) < _MIN_BLOCKS or xs[-1] - xs[0] < 3600 * _MIN_H:
            return
        slope = median_slope(xs, means) * 3600
        code = "memory_rising"
        entry = context.ledger.get(code)
        if not self._is_rising(xs, means, slope):
            if entry is not None and entry.values.get("key") == self.key:
                context.ledger.close(code, round(t * 1000))
            return
        if entry is not None and entry.values.get("key") != self.key:
            return
        entry = context.ledger.open(code, round(xs[0] * 1000), "info", confidence=0.7)
        entry.values |= {"key": self.key, "now_gib": means[-1], "gib_per_h": slope}
        self._set_severity(context, slope, means[-1])

    def restart(self) -> None:
        self.trend = Trend(per_block=6)

    def _is_rising(self, xs: list[float], means: list[float], slope: float) -> bool:
        half = len(xs) // 2
        risen = slope * (xs[-1] - xs[0]) / 3600
        if risen < max(_SHARE[self.key] * means[0], _MIN_GIB):
            return False
        if median_slope(xs[half:], means[half:]) * 3600 < _STILL * slope:
            return False
        return mann_kendall_z(means) > _STEADY_Z

    def _set_severity(self, context: DetectorContext, slope: float, now: float) -> None:
        settings, entry = context.settings, context.ledger.get("memory_rising")
        is_host = self.key == "host_mem_gib"
        limit = settings.host_memory_gib if is_host else settings.gpu_memory_gib
        if entry is None or limit is None:
            return
        hours = max(0.0, limit - now) / slope
        entry.values |= {"limit_gib": limit, "hours_left": hours}
        remaining = context.remaining_h
        if hours < _SOON_H and (remaining is None or hours < remaining):
            entry.grow("critical" if hours < _AT_ONCE_H else "warning")


@dataclass(slots=True)
class Memory(Detector):
    codes = _CODES

    host: _Series = field(default_factory=lambda: _Series("host_mem_gib"))
    gpu: _Series = field(default_factory=lambda: _Series("gpu_mem_gib"))

    def sample(self, context: DetectorContext, t: float, values: Mapping[str, float]) -> None:
        self.host.sample(context, t, values)
        self.gpu.sample(context, t, values)
