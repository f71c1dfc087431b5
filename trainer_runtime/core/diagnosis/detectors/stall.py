"""No step for too long, judged by the run's own pace: `stall`.

The limit is ten times the 99th percentile of the step intervals and at least two minutes; after a
step at which an evaluation or a save is due, also three times the longest such pause (an evaluation
took 35 s against steps of 1.1 s). GPU utilisation proves nothing: 512 GPUs hung for 33 minutes at
100 % (marin#7344). Whether it is a hang (`hang_collective`, …) is decided from stacks.

Silence is summed from check to check, each counting for at most four usual intervals between
checks, so neither a clock change nor a suspended machine causes a stall.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from trainer_runtime.core.decoding import Fields
from trainer_runtime.core.diagnosis.detectors.detector import END, Code, Detector
from trainer_runtime.core.diagnosis.detectors.detector_context import DetectorContext

_TIMES_P99 = 10.0
_MIN_S = 120.0
_TIMES_PAUSE = 3.0
_FIRST_PAUSE_S = 600.0  # while it is unknown how long this run's evaluations and saves take
_START_S = 1800.0  # until the first step: loading, compiling
_FEW_INTERVALS = 5
_FEW_S = 600.0
_LONGEST_CHECK_S = 60.0
_CHECKS = 4.0
_LONG = 5.0


_CODES = {
    "stall": Code(
        "No step for longer than the run's usual pace explains.",
        (
            "silent for {silent_s} s; the limit at its pace is {limit_s} s",
            "99 of 100 steps take at most {p99_interval_s} s",
        ),
        ("Inspect the stacks of every rank (`inspect`): they distinguish a hang from slowness.",),
        closed_by=(END,),
    ),
}


@dataclass(slots=True)
class Stall(Detector):
    codes = _CODES
    reads_raw = ("val_loss",)
    events = ("eval", "checkpoint")

    silent_s: float = 0.0
    checked_at: float | None = None
    usual_check_s: float = 0.0
    clock_set_back: bool = False
    begun: bool = False

    def raw(self, context: DetectorContext, key: str, step: int, value: float) -> None:
        context.pace.pause(step, self.silent_s)
        self.step(context, context.step)

    def event(self, context: DetectorContext, kind: str, step: int, fields: Fields) -> None:
        if kind == "eval" or fields.text("action", "saved") == "saved":
            context.pace.pause(step, self.silent_s)
        self.step(context, context.step)

    def step(self, context: DetectorContext, step: int) -> None:
        self.silent_s, self.clock_set_back, self.begun = 0.0, False, True
        context.ledger.close("stall", step)

    def sample(self, context: DetectorContext, t: float, values: Mapping[str, float]) -> None:
        self.tick(context, t)

    def tick(self, context: DetectorContext, now: float) -> None:
        """Add the time since the last check; `now` is in Unix seconds."""
        last, self.checked_at = self.checked_at, now
        if last is None or not self.begun or context.finished:
            return
        passed = now - last
        if passed <= 0:
            self.clock_set_back = self.clock_set_back or passed < 0
            return
        counted = min(passed, max(_LONGEST_CHECK_S, _CHECKS * self.usual_check_s))
        self.usual_check_s += (counted - self.usual_check_s) * 0.2
        self.silent_s += counted
        if context.t is not None and not self.clock_set_back:
            # Checks made before the newest step, which came in late, don't count as silence.
            self.silent_s = min(self.silent_s, max(0.0, now - context.t))
        limit = limit_s(context)
        if self.silent_s > limit:
            self._report(context, limit)

    def restart(self, context: DetectorContext, step: int) -> None:
        """Wait for the first step."""
        self.silent_s, self.begun = 0.0, True

    def _report(self, context: DetectorContext, limit: float) -> None:
        entry = context.ledger.open(
            "stall",
            context.step,
            "warning",
            step=context.step,
            confidence=0.8,
            values={"limit_s": limit, "p99_interval_s": context.pace.p99_s},
        )
        entry.values["silent_s"] = self.silent_s
        if self.silent_s > _LONG * limit:
            entry.grow("critical")
            entry.confidence = 0.95


def limit_s(context: DetectorContext) -> float:
    """The longest silence in seconds that is not a stall."""
    if context.steps_seen == 0:
        return _START_S
    pace = context.pace
    limit = max(_MIN_S, _TIMES_P99 * pace.p99_s)
    if len(pace.intervals) < _FEW_INTERVALS:
        limit = max(limit, _FEW_S)
    if pace.paused or pace.pause_is_due(context.step) or _pause_is_due(context):
        limit = max(limit, _TIMES_PAUSE * pace.longest_pause_s or _FIRST_PAUSE_S)
    return limit


def _pause_is_due(context: DetectorContext) -> bool:
    settings = context.settings
    every = (settings.eval_every_steps, settings.checkpoint_every_steps)
    return any(interval and context.step % interval == 0 for interval in every) or (
        context.step >= (context.target_step or settings.steps or context.step + 1)
    )
