"""A metric that is not finite: `nan_loss`, `nan_grad`, `nan_eval`, `nan_metric`, `reward_std_nan`.

Critical at once; the remedy resumes from before the onset: nanoGPT#215 saved at step 3000 and
logged NaN at 3010, so a checkpoint written in between is useless. HF Trainer's `nan_filter` prints
`loss 0` beside `grad_norm nan`, so the gradient decides. Older versions print the zero alone: three
zeros in a row after a loss that was not small count as NaN. With a loss scaler an overflowing
gradient only skips the step; twelve in a row are not normal overflows any more (a scale of 65,536
has fallen to 16 by then).

A validation loss of NaN without a training loss of NaN says something of its data or precision, not
of the weights. Rewards or log-probabilities of NaN beside a loss of exactly 0 are a loss of NaN
that a filter printed as 0 (trl#1199); without such a zero 8 in a row count, as KTO prints NaN for a
batch without answers of a kind. A `reward_std` of NaN is the deviation of a single answer.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from trainer_runtime.core.decoding import Fields
from trainer_runtime.core.diagnosis.detectors import kl, margins, overoptimization, rewards
from trainer_runtime.core.diagnosis.detectors.detector import LARGEST, REWIND, Code, Detector
from trainer_runtime.core.diagnosis.detectors.detector_context import DetectorContext

_FINITE_AGAIN = 3  # points
_OVERFLOWS_IN_A_ROW = 12
_ZEROS_IN_A_ROW = 3
_NOT_SMALL = 0.1  # nats
_METRICS_IN_A_ROW = 8
_SERIES = ("loss", "val_loss", "grad_norm")
_METRICS = (
    *(*margins.MARGINS, *margins.ACCURACIES, *kl.KEYS, *rewards.KEYS),
    *(*overoptimization.ROW, *overoptimization.VAL_ACCURACIES),
)
_WARNINGS = frozenset({"nan_eval", "nan_metric"})


_CODES = {
    "nan_loss": Code(
        "The loss is NaN or infinite; HF Trainer's filter prints 0.0 for it, beside a gradient "
        "norm of NaN. Checkpoints written since the onset can't be trusted.",
        (
            "{key} {value}",
            "last finite loss {last_finite_loss} at step {last_finite_step}",
            "lr {lr}",
        ),
        ("Resume from before the onset; later checkpoints already contain NaN.",),
        remedies=("bf16", "rewind_skip_data", "rewind_halve_lr", "rewind_tighter_clip"),
        announces_rewind=True,
        closed_by=(REWIND,),
    ),
    "nan_grad": Code(
        "The gradient is NaN or infinite, although the loss is finite.",
        (
            "{key} {value}",
            "last finite loss {last_finite_loss} at step {last_finite_step}",
            "lr {lr}",
        ),
        ("Resume from before the onset. HF Trainer's nan_filter logs such steps as loss 0.",),
        remedies=("bf16", "rewind_skip_data", "rewind_halve_lr", "rewind_tighter_clip"),
        announces_rewind=True,
        closed_by=(REWIND,),
    ),
    "nan_eval": Code(
        "The validation loss is NaN or infinite, but no training loss that was read is.",
        (
            "{key} {value}",
            "last training loss {last_finite_loss} at step {last_finite_step}",
        ),
        (
            "Check for validation rows whose labels are all masked (-100) or cut off, and for an "
            "empty validation set.",
            "Evaluate in bf16 or fp32: fp16 overflows (`fp16_full_eval`).",
            "Best checkpoints and early stopping that go by it choose at random.",
        ),
        closed_by=(REWIND,),
    ),
    "nan_metric": Code(
        "Rewards, log-probabilities or the divergence are NaN at every point, though the loss is "
        "finite.",
        ("{key} {value}", "lr {lr}"),
        (
            "Check for answers without tokens, and for a reward function that returns NaN.",
            "Train in bf16 in the place of fp16: log-probabilities overflow there.",
        ),
        closed_by=(REWIND,),
    ),
    "reward_std_nan": Code(
        "The deviation of the rewards is NaN: with one generation per prompt it is that of a "
        "single value, and every advantage becomes NaN.",
        ("{key} {value}", "lr {lr}"),
        (
            "Set num_generations to 2 or more (8 is usual).",
            "With more than one, check for a reward function that returns NaN.",
        ),
        closed_by=(REWIND,),
        led_to=("nan_grad", "nan_loss"),
    ),
}


@dataclass(slots=True)
class NonFinite(Detector):
    """`lost`: a loss was not finite, or 0, and too few finite ones have followed since.
    `zero_step`: of the newest loss of exactly 0; `metrics`: by key, how often in a row one was not
    finite, and since which step."""

    codes = _CODES
    judges_learning = True
    reads_raw = (*_SERIES, *_METRICS)
    events = ("warning",)

    lost: bool = False
    finite_losses: int = 0
    overflows: int = 0
    overflow_onset: int = 0
    zeros: int = 0
    zero_onset: int = 0
    zero_step: int | None = None
    metrics: dict[str, list[int]] = field(default_factory=dict)

    def raw(self, context: DetectorContext, key: str, step: int, value: float) -> None:
        if not -LARGEST < value < LARGEST:
            take = self._seen if key in _SERIES else self._metric
            take(context, key, step, value)
        elif key == "loss":
            if value == 0 or self.lost or self.overflows:
                self._finite_loss(context, step, value)
        elif key == "grad_norm":
            if value == 0 or self.overflows:
                self._finite_gradient(context, step, value)
        elif key == "val_loss":
            context.ledger.close("nan_eval", step)
        elif self.metrics:
            self._finite_metric(context, key, step)

    def event(self, context: DetectorContext, kind: str, step: int, fields: Fields) -> None:
        """The trainer's own guard reported a code."""
        code = fields.text("code", "")
        if code in ("nan_loss", "nan_grad"):
            self._open(context, code, step, {})

    def _seen(self, context: DetectorContext, key: str, step: int, value: float) -> None:
        """Take in a value of `loss`, `val_loss` or `grad_norm` that is not finite."""
        if key == "grad_norm":
            self._gradient(context, step, value)
            return
        gradient = context.ledger.get("nan_grad")
        if key == "val_loss" and not self.lost and gradient is None:
            self._open(context, "nan_eval", step, {"key": key, "value": str(value)})
            return
        if gradient is not None and gradient.onset == step:
            context.ledger.withdraw("nan_grad")
        evaluation = context.ledger.get("nan_eval")
        if evaluation is not None and evaluation.onset == step:
            context.ledger.withdraw("nan_eval")
        self.lost, self.finite_losses = True, 0
        self._open(context, "nan_loss", step, {"key": key, "value": str(value)})

    def _metric(self, context: DetectorContext, key: str, step: int, value: float) -> None:
        """Take in a reward, log-probability or divergence that is not finite."""
        values = {"key": key, "value": str(value)}
        in_a_row = self.metrics.setdefault(key, [0, step])
        in_a_row[0] += 1
        if key == "reward_std":
            self._open(context, "reward_std_nan", step, values, 0.9)
        elif self.zero_step == step:
            self.lost, self.finite_losses = True, 0
            self._open(context, "nan_loss", step, values, 0.9)
        elif in_a_row[0] == _METRICS_IN_A_ROW and not self.lost:
            self._open(context, "nan_metric", in_a_row[1], values, 0.8)

    def _finite_metric(self, context: DetectorContext, key: str, step: int) -> None:
        if self.metrics.pop(key, None) is None:
            return
        if key == "reward_std":
            context.ledger.close("reward_std_nan", step)
        if not self.metrics:
            context.ledger.close("nan_metric", step)

    def _finite_loss(self, context: DetectorContext, step: int, value: float) -> None:
        if value == 0 and not context.is_reinforced:
            self._zero(context, step)
            return
        if self.lost:
            self._finite_again(context, step)
        entry = context.ledger.get("nan_grad") if self.overflows else None
        if entry is not None and entry.onset == step:
            entry.values["loss_at_onset"] = value

    def _finite_again(self, context: DetectorContext, step: int) -> None:
        """Take in a finite training loss that is not 0, while `lost`."""
        self.finite_losses += 1
        if self.finite_losses < _FINITE_AGAIN:
            return
        context.ledger.close("nan_loss", step)
        if self.zeros and not self.overflows:
            context.ledger.close("nan_grad", step)
        self.lost, self.zeros = False, 0

    def _zero(self, context: DetectorContext, step: int) -> None:
        """Take in a training loss of exactly 0."""
        before = context.losses[-1][1] if context.losses else 0.0
        self.zero_step = step
        if self.zeros == 0 and before <= _NOT_SMALL:
            return
        if self.zeros == 0:
            self.zero_onset = step
        self.zeros += 1
        self.lost, self.finite_losses = True, 0
        named = context.ledger.get("nan_grad") or context.ledger.get("nan_loss")
        if self.zeros == _ZEROS_IN_A_ROW and named is None:
            self._open(context, "nan_grad", self.zero_onset, {"key": "loss", "value": "0"}, 0.7)

    def _finite_gradient(self, context: DetectorContext, step: int, value: float) -> None:
        if self.overflows:
            self.overflows = 0
            context.ledger.close("nan_grad", step)
        entry = context.ledger.get("nan_grad")
        if value == 0 and self.zeros and entry is not None and entry.values.get("key") == "loss":
            context.ledger.withdraw("nan_grad")  # the zeros of the loss are no NaN

    def _gradient(self, context: DetectorContext, step: int, value: float) -> None:
        scaled = context.latest.get("loss_scale", 0.0) > 1 or context.settings.precision == "fp16"
        if self.overflows == 0:
            self.overflow_onset = step
        self.overflows += 1
        if scaled and self.overflows < _OVERFLOWS_IN_A_ROW:
            return
        loss = context.ledger.get("nan_loss")
        if loss is not None and loss.onset <= self.overflow_onset:
            return
        self._open(
            context, "nan_grad", self.overflow_onset, {"key": "grad_norm", "value": str(value)}
        )

    def _open(
        self,
        context: DetectorContext,
        code: str,
        step: int,
        values: dict[str, str],
        confidence: float = 1.0,
    ) -> None:
        if context.ledger.get(code) is not None:
            return
        last = next(((s, v) for s, v in reversed(context.losses) if s < step), None)
        before = {} if last is None else {"last_finite_step": last[0], "last_finite_loss": last[1]}
        if context.losses and context.losses[-1][0] == step:
            before["loss_at_onset"] = context.losses[-1][1]
        context.ledger.open(
            code,
            step,
            "warning" if code in _WARNINGS else "critical",
            step=step,
            confidence=confidence,
            values={**values, **before, "lr": context.latest.get("lr")},
            remedies=_CODES[code].remedies,
        )
