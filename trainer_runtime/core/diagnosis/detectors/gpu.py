"""A GPU that waits (`gpu_idle`) or is throttled (`gpu_throttled`), with the cause.

Evaluated over five minutes of telemetry while steps are made, because a single sample may fall
between two kernels. Utilisation under 80 % is worth reporting, under 50 % half of the machine is
wasted; an A100 that is busy and still under 40 % MFU waits inside its kernels. A throttle flag
alone is not a finding: at full load a card runs at its power cap by design.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field

from trainer_runtime.core.diagnosis.detectors.causes import slowing_cause, waiting_cause
from trainer_runtime.core.diagnosis.detectors.detector import END, Code, Detector
from trainer_runtime.core.diagnosis.detectors.detector_context import DetectorContext
from trainer_runtime.core.diagnosis.detectors.ledger import Value

_SAMPLES = 30  # five minutes at the supervisor's sampling interval
_MIN_POINTS = 12
_MIN_SPAN_S = 240.0
_LOW, _BACK, _HALF = 80.0, 85.0, 50.0
_LOW_MFU = 0.40
_A100_PEAK_FLOPS = 312e12
_STRAGGLER_SHARE = 0.8
_KEYS = (
    "gpu_util",
    "gpu_power_w",
    "gpu_temp_c",
    "gpu_clock_mhz",
    "gpu_throttle",
    "gpu_mem_gib",
    "cpu_util",
    "net_mib_s",
)

Sample = tuple[float, dict[str, float]]


_MACHINE = (
    "GPU utilisation {gpu_util} %",
    "GPU {gpu} alone: {gpu_alone_util} %",
    "GPU clock {gpu_clock_mhz} MHz, {best_clock_mhz} at its best",
    "GPU temperature {gpu_temp_c} °C, power {gpu_power_w} W",
    "share of the step spent waiting for data {data_time_share}",
    "share of the step spent waiting for other ranks {comm_time_share}",
    "MFU {mfu}",
    "CPU {cpu_util} % busy",
    "network {net_mib_s} MiB/s",
)
_CODES = {
    "gpu_idle": Code(
        "The GPU is idle for much of the time.",
        _MACHINE,
        ("Check what it waits for: data, other ranks, or the CPU that feeds it.",),
        remedies=("double_micro_batch",),
        closed_by=(END,),
    ),
    "gpu_throttled": Code(
        "The GPU is throttled.",
        _MACHINE,
        ("Check cooling and power limit (`nvidia-smi -q -d PERFORMANCE`).",),
        closed_by=(END,),
    ),
}


@dataclass(slots=True)
class Gpu(Detector):
    """`samples` are the newest as (t, values); `lowest` holds, for each of them, the index and the
    utilisation of the least used GPU."""

    codes = _CODES

    samples: deque[Sample] = field(default_factory=lambda: deque(maxlen=_SAMPLES))
    lowest: deque[tuple[str, float]] = field(default_factory=lambda: deque(maxlen=_SAMPLES))

    def sample(self, context: DetectorContext, t: float, values: Mapping[str, float]) -> None:
        if context.steps_seen == 0 or context.finished:
            self.restart(context, 0)
            return
        kept = {key: value for key in _KEYS if (value := _mean_of(values, key)) is not None}
        if "gpu_util" not in kept and "gpu_throttle" not in kept and "gpu_clock_mhz" not in kept:
            return
        if self.samples and t <= self.samples[-1][0]:
            return
        self.samples.append((t, kept))
        self.lowest.append(_lowest(values))
        context.best_clock_mhz = max(context.best_clock_mhz, kept.get("gpu_clock_mhz", 0.0))
        if len(self.samples) >= _MIN_POINTS and t - self.samples[0][0] >= _MIN_SPAN_S:
            means = _means(self.samples)
            self._check_load(context, t, means)
            self._check_clock(context, t, means)

    def _check_load(self, context: DetectorContext, t: float, means: dict[str, float]) -> None:
        used = means.get("gpu_util")
        if used is None:
            return
        slow = self._straggler()
        mfu = context.latest.get("mfu", 1.0)
        is_a100 = context.settings.peak_flops == _A100_PEAK_FLOPS
        low_mfu = is_a100 and 0 < mfu < _LOW_MFU
        if used >= _BACK and slow is None and not low_mfu:
            context.ledger.close("gpu_idle", _ms(t))
        if used >= _LOW and slow is None and not low_mfu:
            return
        cause = waiting_cause(context.latest, means)
        remedies = _CODES["gpu_idle"].remedies if cause.name == "host" else ()
        entry = context.ledger.open(
            "gpu_idle", _ms(self.samples[0][0]), "info", confidence=0.8, remedies=remedies
        )
        entry.values |= _figures(means, context, cause.name)
        entry.values |= {"gpu": slow[0], "gpu_alone_util": slow[1]} if slow else {}
        entry.confidence = cause.confidence
        if used < _HALF:
            entry.grow("warning")

    def _check_clock(self, context: DetectorContext, t: float, means: dict[str, float]) -> None:
        cause = slowing_cause(means, context.best_clock_mhz)
        if cause is None:
            context.ledger.close("gpu_throttled", _ms(t))
            return
        entry = context.ledger.open("gpu_throttled", _ms(self.samples[0][0]), "warning")
        entry.values |= _figures(means, context, cause.name)
        entry.values["best_clock_mhz"] = context.best_clock_mhz
        entry.confidence = cause.confidence

    def _straggler(self) -> tuple[str, float] | None:
        """The GPU of several that was under 50 % in nearly all samples, with its utilisation."""
        idle = [index for index, used in self.lowest if index and used < _HALF]
        if not idle:
            return None
        index = max(set(idle), key=idle.count)
        if idle.count(index) < _STRAGGLER_SHARE * len(self.lowest):
            return None
        used = [value for at, value in self.lowest if at == index]
        return index, sum(used) / len(used)


def _figures(means: dict[str, float], context: DetectorContext, cause: str) -> dict[str, Value]:
    keys = ("data_time_share", "comm_time_share", "mfu")
    shares = {key: context.latest[key] for key in keys if key in context.latest}
    return {"cause": cause, **means, **shares}


def _means(samples: deque[Sample]) -> dict[str, float]:
    means = {}
    for key in _KEYS:
        readings = [values[key] for _, values in samples if key in values]
        if readings:
            means[key] = sum(readings) / len(readings)
    return means


def _mean_of(values: Mapping[str, float], key: str) -> float | None:
    """The value of the key, else its mean over the GPUs."""
    if key in values:
        return values[key]
    if not key.startswith("gpu_"):
        return None
    readings = [value for name, value in values.items() if name.startswith(f"{key}/")]
    return sum(readings) / len(readings) if readings else None


def _lowest(values: Mapping[str, float]) -> tuple[str, float]:
    """The index and utilisation of the least used of several GPUs."""
    readings = [(value, name[9:]) for name, value in values.items() if name.startswith("gpu_util/")]
    if len(readings) < 2:
        return "", 0.0
    used, index = min(readings)
    return index[:8], used


def _ms(t: float) -> int:
    return round(t * 1000)
