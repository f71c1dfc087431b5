"""The training loss jumps: `loss_spike`.

`outlier.py` describes the rule and the measurements behind it. One odd step is a note, not a
finding; two of the last four are a warning, and so is a single one of over 3 x (no benign blip of
the 269,720 measured steps reached 2 x) where the newest 64 points had none as high. A rewind is
proposed over 3 x or after 50 steps. It is critical after 50 steps or two points over 3 x: by then
the data or the learning rate is the cause, not a single batch. PaLM restarted about 100 steps
before a spike and skipped 200 to 500 batches (arXiv:2204.02311, section 5.1).
"""

from __future__ import annotations

from dataclasses import dataclass, field

from trainer_runtime.core.diagnosis.detectors.detector import PHASE, REWIND, Code, Detector
from trainer_runtime.core.diagnosis.detectors.detector_context import DetectorContext
from trainer_runtime.core.diagnosis.detectors.ledger import LedgerEntry
from trainer_runtime.core.diagnosis.detectors.window import times

_HUGE = 3.0
_LASTING_STEPS = 50
_LASTING_POINTS = 4
_LEVEL_POINTS = 400  # after this many it is the loss's new level, which is `divergence`
_NORMAL_AGAIN = 4  # points in a row
_OUTLIER = 1.5  # of the loss's level: worth a word where they are several
_FEWEST_OUTLIERS = 3
_STEPS_NAMED = 12


_CODES = {
    "loss_spike": Code(
        "The loss jumped far above its previous level.",
        (
            "loss {loss_before} before, {loss} at the onset: a factor of up to {factor}",
            "peak {peak} at step {peak_step}; {lasted_steps} steps so far",
            "the losses before: {losses_before}",
            "gradient norm {grad_norm} at the onset, up to {grad_norm_peak}, {grad_norm_normal} "
            "normally",
            "lr {lr}",
            "trained on sequences {first_sequence} to {last_sequence}",
        ),
        (
            "If the loss recovers within a few steps, nothing needs to be done.",
            "If it doesn't, rewind and skip the data; if the spike recurs, halve the lr.",
        ),
        remedies=(
            "rewind_skip_data",
            "rewind_halve_lr",
            "rewind_tighter_clip",
            "denser_checkpoints",
        ),
        announces_rewind=True,
        closed_by=(REWIND, PHASE),
    ),
    "loss_outliers": Code(
        "Single steps have a loss far above its level, which is back right afterwards.",
        ("{outliers} steps of 1.5 times the level and more, up to {factor} times", "steps {steps}"),
        (
            "Nothing has to be done while the loss falls; the same rows of data, or a batch that "
            "is too small, are the usual reasons.",
        ),
    ),
}


@dataclass(slots=True)
class Spike(Detector):
    """`median` is that of the loss before the open spike, `normal` the number of points in a row
    that are back at it. `outliers` counts isolated ones of 1.5 x and more, `outlier_steps` are the
    first of them."""

    codes = _CODES
    judges_learning = True
    reads = ("loss", "grad_norm")
    restarts_with_phase = True

    median: float = 0.0
    normal: int = 0
    points: int = 0
    huge: int = 0
    outliers: int = 0
    outlier_steps: list[int] = field(default_factory=list)
    worst_outlier: float = 0.0

    def point(self, context: DetectorContext, key: str, step: int, value: float) -> None:
        if key == "grad_norm":
            if self.points:
                self._gradient(context, step, value)
            return
        outlier = context.loss
        odd = outlier.take(step, value)
        if outlier.flags:
            self._judge(context, step, value, odd)
        elif self.points:
            self._update_open(context, step, value)

    def _gradient(self, context: DetectorContext, step: int, value: float) -> None:
        """Take in a gradient norm while a spike is open."""
        entry = context.ledger.get("loss_spike")
        if entry is None:
            return
        if step == entry.onset:
            entry.values["grad_norm"] = value
        peak = entry.values.get("grad_norm_peak")
        if not isinstance(peak, (int, float)) or value > peak:
            entry.values["grad_norm_peak"] = value

    def restart(self, context: DetectorContext, step: int) -> None:
        self.points = 0

    def _judge(self, context: DetectorContext, step: int, value: float, odd: bool) -> None:
        if self.points:
            self._update_open(context, step, value)
            return
        if not odd:
            return
        onset, at_onset, median = context.loss.first_odd
        huge = value > _HUGE * median and context.loss.is_unseen(value)
        if not (context.loss.is_met or huge):
            self._note(context, step, value, times(value, median))
            return
        self._unnote(context, onset)
        before = [loss for at, loss in context.losses if at < onset]
        self.median, self.normal, self.points, self.huge = median, 0, 0, 0
        context.ledger.open(
            "loss_spike",
            onset,
            "warning",
            step=onset,
            confidence=0.95 if context.loss.is_met else 0.8,
            values={
                "loss_before": median,
                "losses_before": [*before[-4:]],
                "loss": at_onset,
                "peak": at_onset,
                "peak_step": onset,
                "factor": times(at_onset, median),
                "lr": context.latest.get("lr"),
                **_gradients(context, onset),
                **_batches(context, onset, step),
            },
        )
        rising = context.ledger.get("grad_norm_rising")
        if rising is not None:
            rising.values["spike_step"] = onset
        self._update_open(context, step, value)

    def _note(self, context: DetectorContext, step: int, value: float, factor: float) -> None:
        context.notes.append((step, value, factor))
        if factor < _OUTLIER:
            return
        self.outliers += 1
        self.worst_outlier = max(self.worst_outlier, factor)
        if len(self.outlier_steps) < _STEPS_NAMED:
            self.outlier_steps.append(step)
        if self.outliers < _FEWEST_OUTLIERS:
            return
        first = self.outlier_steps[0]
        entry = context.ledger.open("loss_outliers", first, "info", step=first, confidence=0.9)
        entry.values |= {
            "outliers": self.outliers,
            "steps": [*self.outlier_steps],
            "factor": self.worst_outlier,
        }

    def _unnote(self, context: DetectorContext, onset: int) -> None:
        """The step that was noted last isn't an isolated one: a spike begins with it."""
        if not context.notes or context.notes[-1][0] != onset:
            return
        _, _, factor = context.notes.pop()
        if factor >= _OUTLIER:
            self.outliers -= 1
            self.outlier_steps = self.outlier_steps[: self.outliers]

    def _update_open(self, context: DetectorContext, step: int, value: float) -> None:
        entry = context.ledger.get("loss_spike")
        if entry is None:  # withdrawn, or from an attempt that has ended
            self.points = 0
            return
        self.points += 1
        self.normal = 0 if context.loss.is_above(value, self.median) else self.normal + 1
        if self.normal == 0:
            self._grow(context, entry, step, value)
        if self.normal >= _NORMAL_AGAIN or self.points > _LEVEL_POINTS:
            context.ledger.close("loss_spike", step)
            self.points = 0

    def _grow(self, context: DetectorContext, entry: LedgerEntry, step: int, value: float) -> None:
        entry.values["last_step"] = step
        entry.values["lasted_steps"] = step - entry.onset + 1
        entry.values |= _batches(context, entry.onset, step)
        peak = entry.values["peak"]
        if isinstance(peak, (int, float)) and value > peak:
            entry.values |= {"peak": value, "peak_step": step, "factor": times(value, self.median)}
        if value > _HUGE * self.median:
            self.huge += 1
            entry.remedies = list(_CODES["loss_spike"].remedies)
        if context.loss.is_met:
            entry.confidence = 0.95
        lasting = step - entry.onset >= _LASTING_STEPS and self.points >= _LASTING_POINTS
        if self.huge > 1 or lasting:
            entry.grow("critical")
            entry.remedies = list(_CODES["loss_spike"].remedies)


def _gradients(context: DetectorContext, onset: int) -> dict[str, float]:
    """The gradient norm at the onset, the largest since, and its level before it rose."""
    since = [(step, value) for step, value in context.grad_norms if step >= onset]
    values: dict[str, float] = {}
    rising = context.ledger.get("grad_norm_rising")
    if rising is not None:
        normal = rising.values["grad_norm_normal"]
        values |= {"grad_norm_normal": normal} if isinstance(normal, float) else {}
    elif len(context.gradient.window):
        values["grad_norm_normal"] = context.gradient.window.median
    if since:
        values["grad_norm_peak"] = max(value for _, value in since)
        at_onset = [value for step, value in since if step == onset]
        values |= {"grad_norm": at_onset[0]} if at_onset else {}
    return values


def _batches(context: DetectorContext, first: int, last: int) -> dict[str, float]:
    """The sequences, counted from the start of the data, that the steps were trained on."""
    settings = context.settings
    if settings.sequences_per_step is None:
        return {}
    begins = settings.sequences_before(max(0, first - 1))
    return {
        "first_sequence": begins + _skipped(context, first),
        "last_sequence": settings.sequences_before(last) - 1 + _skipped(context, last),
    }


def _skipped(context: DetectorContext, step: int) -> int:
    return sum(sequences for at, sequences in context.settings.skips if at < step)
