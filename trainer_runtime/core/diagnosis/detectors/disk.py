"""The disk fills up: `disk_filling`, with the hours left.

Free space drops with every checkpoint and recovers with every pruned one. So the minimum of the
newer half of the samples is compared with that of the older half: the difference is what pruning
does not recover. The trend is extrapolated to at most four times the observed span, because the
first few checkpoints, before any is pruned, resemble a filling disk. Nothing is reported where the
run ends before the disk is full. A disk without room for the next checkpoint is critical whatever
the trend.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from trainer_runtime.core.decoding import Fields
from trainer_runtime.core.diagnosis.detectors.detector import Code, Detector
from trainer_runtime.core.diagnosis.detectors.detector_context import DetectorContext
from trainer_runtime.core.diagnosis.detectors.trend import Trend
from trainer_runtime.core.protocol.finding import Severity

_MIN_BLOCKS = 16
_MIN_S = 1800.0
_SOON_H, _AT_ONCE_H = 24.0, 3.0
_MIN_SUNK_GIB = 0.05
_MAX_EXTRAPOLATION = 4.0  # times the observed span
_ROOM = 1.2  # of a checkpoint: it is written before an older one is removed
_MIN_FREE_GIB = 0.25
_CODE = "disk_filling"


_CODES = {
    "disk_filling": Code(
        "The disk is filling up.",
        (
            "{free_gib} GiB free, full in {hours_left} hours",
            "{free_gib} GiB free, {needed_gib} needed for the next checkpoint",
        ),
        ("Free space (`clean`), or keep fewer checkpoints.",),
        remedies=("keep_fewer_checkpoints",),
    ),
}


@dataclass(slots=True)
class Disk(Detector):
    codes = _CODES
    events = ("attempt_starting", "started", "resumed", "checkpoint")

    trend: Trend = field(default_factory=lambda: Trend(per_block=6))

    def sample(self, context: DetectorContext, t: float, values: Mapping[str, float]) -> None:
        free_gib = values.get("disk_free_gib")
        if free_gib is None:
            return
        completed = self.trend.add(t, free_gib)
        needed = max(_MIN_FREE_GIB, _ROOM * (context.checkpoint_gib or 0.0))
        if free_gib < needed and not context.finished:
            entry = context.ledger.open(
                _CODE,
                round(t * 1000),
                "critical",
                confidence=0.95,
                remedies=_CODES[_CODE].remedies,
            )
            entry.values |= {"free_gib": free_gib, "needed_gib": needed}
        elif completed:
            self._check(context, t, free_gib)

    def restart(self, context: DetectorContext, step: int) -> None:
        """The disk stays as it is."""

    def event(self, context: DetectorContext, kind: str, step: int, fields: Fields) -> None:
        """Downloads during preparation don't count towards the trend, nor do checkpoints that are
        kept as planned."""
        if kind == "checkpoint":
            is_saved = fields.text("action", "saved") == "saved"
            if not is_saved or context.saves > (context.settings.keeps_checkpoints or 0):
                return
        self.trend = Trend(per_block=6)

    def _check(self, context: DetectorContext, t: float, free_gib: float) -> None:
        hours = self._hours_left(free_gib)
        remaining = context.remaining_h
        too_late = remaining is not None and hours is not None and hours > remaining
        if hours is None or hours > _SOON_H or too_late or context.finished:
            context.ledger.close(_CODE, round(t * 1000))
            return
        severity: Severity = "critical" if hours < _AT_ONCE_H else "warning"
        onset = round(self.trend.xs[0] * 1000)
        remedies = _CODES[_CODE].remedies
        entry = context.ledger.open(_CODE, onset, severity, confidence=0.8, remedies=remedies)
        entry.values |= {"free_gib": free_gib, "hours_left": hours}

    def _hours_left(self, free_gib: float) -> float | None:
        """At the rate at which the minimum free space falls; None while it doesn't fall."""
        xs, means = self.trend.xs, self.trend.means
        if len(xs) < _MIN_BLOCKS or xs[-1] - xs[0] < _MIN_S:
            return None
        half = len(xs) // 2
        sunk = min(means[:half]) - min(means[half:])
        span_h = (xs[-1] - xs[0]) / 3600
        if sunk <= _MIN_SUNK_GIB:
            return None
        hours = free_gib / sunk * span_h / 2
        return hours if hours < _MAX_EXTRAPOLATION * span_h else None
