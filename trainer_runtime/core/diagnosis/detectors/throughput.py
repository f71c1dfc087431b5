"""The run has become slower: `throughput_drop`.

MFU or tokens/s down by 15 % or more over five logged points, against the median of the 64 before.
Points right after an evaluation or a save are left out, since many trainers include those seconds.
Where steps are quick, the drop has to last five seconds. The five must lie below what the usual
scatter explains (MAD z < -4): on a shared machine 15 % is common.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from trainer_runtime.core.diagnosis.detectors.causes import slowing_cause, waiting_cause
from trainer_runtime.core.diagnosis.detectors.detector import REWIND, Code, Detector
from trainer_runtime.core.diagnosis.detectors.detector_context import DetectorContext
from trainer_runtime.core.diagnosis.detectors.window import Window, mad_z, median_of

# One of them is evaluated: the first in this order that the run logs.
KEYS = ("tokens_per_s", "samples_per_s", "mfu", "step_time_s")
_DOWN = 0.85
_BACK = 0.92
_IN_A_ROW = 5
_MIN_S = 5.0
_MAX_LOW = 64
_MIN_POINTS = 16
_Z = -4.0
_SLOWEST = 1e-9
_LEVEL_POINTS = 2000  # after this many points it is the run's new pace


_CODES = {
    "throughput_drop": Code(
        "The run has become slower.",
        ("{key} {before} before, {now} now: a loss of {drop}",),
        ("Check data loading and other load on the machine.",),
        closed_by=(REWIND,),
    ),
}


@dataclass(slots=True)
class Throughput(Detector):
    """`low` are the low points, `median` and `mad` those of the window before the first of them."""

    codes = _CODES
    reads = KEYS

    key: str = ""
    window: Window = field(default_factory=Window)
    low: list[float] = field(default_factory=list)
    low_since: int = 0
    low_t: float | None = None
    median: float = 0.0
    mad: float = 0.0
    normal: int = 0
    points: int = 0

    def point(self, context: DetectorContext, key: str, step: int, value: float) -> None:
        if key != self.key and not self._switches_to(key):
            return
        if context.after_pause or value < _SLOWEST:  # nanoGPT's MFU is -100 % until it is measured
            return
        speed = 1 / value if key == "step_time_s" else value
        if self.points:
            self._update_open(context, step, speed)
        elif len(self.window) < _MIN_POINTS or not self._is_low(context, step, speed):
            self.window.add(speed)
        elif len(self.low) >= _IN_A_ROW and self._lasts(context):
            self._judge(context, step)

    def restart(self, context: DetectorContext, step: int) -> None:
        self._clear()

    def _clear(self) -> None:
        self.window.clear()
        self.low, self.points = [], 0

    def _switches_to(self, key: str) -> bool:
        if self.key and KEYS.index(key) > KEYS.index(self.key):
            return False
        self.key = key
        self._clear()
        return True

    def _is_low(self, context: DetectorContext, step: int, speed: float) -> bool:
        """Whether this point starts or continues a row of low ones."""
        if not self.low:
            ranked = self.window.ranked
            self.median = ranked[len(ranked) >> 1]
            if speed > _DOWN * self.median:
                return False
            self.low_since, self.low_t, self.mad = step, context.t, self.window.mad
        elif speed > _DOWN * self.median:
            for earlier in self.low:
                self.window.add(earlier)
            self.low = []
            return False
        self.low = [*self.low, speed][-_MAX_LOW:]
        return True

    def _lasts(self, context: DetectorContext) -> bool:
        known = context.t is not None and self.low_t is not None
        return not known or (context.t or 0.0) - (self.low_t or 0.0) >= _MIN_S

    def _judge(self, context: DetectorContext, step: int) -> None:
        typical = median_of(sorted(self.low))
        if mad_z(typical, self.median, self.mad) > _Z and self.mad > 0:
            for earlier in self.low:
                self.window.add(earlier)
            self.low = []
            return
        slowed = slowing_cause(context.machine, context.best_clock_mhz)
        cause = slowed or waiting_cause(context.latest, context.machine)
        context.ledger.open(
            "throughput_drop",
            self.low_since,
            "warning",
            step=self.low_since,
            confidence=0.85,
            values={
                "key": self.key,
                "before": self._as_logged(self.median),
                "cause": cause.name,
                "cause_confidence": cause.confidence,
            },
        )
        self.points = 1
        self._update_open(context, step, typical)

    def _update_open(self, context: DetectorContext, step: int, speed: float) -> None:
        entry = context.ledger.get("throughput_drop")
        self.points += 1
        self.normal = self.normal + 1 if speed >= _BACK * self.median else 0
        if entry is not None and self.normal == 0:
            self.low = [*self.low, speed][-_IN_A_ROW:]
            typical = median_of(sorted(self.low))
            if typical <= _DOWN * self.median:
                drop = 1 - typical / self.median
                entry.values |= {"now": self._as_logged(typical), "drop": drop, "last_step": step}
        if entry is None or self.normal >= _IN_A_ROW or self.points > _LEVEL_POINTS:
            context.ledger.close("throughput_drop", step)
            self._clear()

    def _as_logged(self, speed: float) -> float:
        return 1 / speed if self.key == "step_time_s" else speed
