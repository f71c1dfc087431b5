"""Records the values of an attempt's steps and evaluations, and stops at non-finite ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from trainer_runtime.train.attempt import nan_guard
from trainer_runtime.train.attempt.device import peak_memory
from trainer_runtime.train.attempt.events import EventLog
from trainer_runtime.train.loop.checkpoint_metrics import VAL_LOSS_EMA, CheckpointMetrics
from trainer_runtime.train.loop.noise_scale import NoiseScale
from trainer_runtime.train.loop.range_test import RangeTest
from trainer_runtime.train.loop.report import Lines, perplexity
from trainer_runtime.train.loop.speed import Cost, StepClock

# Among a step's values: the gradient norm after its first micro-batch, which is not recorded.
MICRO_NORM = "micro_norm"


class Recorder:
    """Writes `metric` and `eval` events and the lines for people.

    On a GPU a step's values are read when the next step ends, so that reading waits for nothing;
    `catch_up` reads them at once.
    """

    def __init__(
        self, events: EventLog, lines: Lines, cost: Cost, max_norm: float, skips_overflow: bool
    ) -> None:
        """`skips_overflow`: a loss scaler takes care of gradients that overflow."""
        self._events = events
        self._lines = lines
        self._cost = cost
        self._max_norm = max_norm
        self._skips_overflow = skips_overflow
        self._unread: tuple[int, float, tuple[str, ...], Tensor] | None = None
        self._landed: torch.cuda.Event | None = None
        self._metrics = CheckpointMetrics(best_by="val_loss")
        self._range_test = RangeTest(cost.curriculum.config)
        self.noise_scale = NoiseScale(cost.curriculum, is_measured=not skips_overflow)
        self.clock = StepClock()

    def check(self, step: int, learning_rate: float, loss: float, grad_norm: float) -> None:
        """Lets finite values pass; others are recorded as the last metrics of the attempt.

        Raises:
            NonFiniteError: one of them is not finite.
        """
        try:
            nan_guard.check(step, loss, None if self._skips_overflow else grad_norm)
        except nan_guard.NonFiniteError as error:
            self._record_non_finite(error, learning_rate, loss, grad_norm)
            raise

    def end_step(self, step: int, learning_rate: float, measured: Mapping[str, Tensor]) -> None:
        """Takes a finished step's `loss`, `grad_norm` and other values; raises NonFiniteError where
        `check` does."""
        self.catch_up()
        names = tuple(measured)
        values = torch.stack([value.detach() for value in measured.values()])
        if values.is_cuda:
            # Pinned memory, or the copy would not be asynchronous; read a step later.
            landed = torch.empty(len(names), pin_memory=True)
            landed.copy_(values, non_blocking=True)
            self._landed = torch.cuda.Event()  # type: ignore[no-untyped-call]
            self._landed.record()
            self._unread = step, learning_rate, names, landed
            return
        self._unread = step, learning_rate, names, values
        self.catch_up()

    def catch_up(self) -> None:
        """Records the step whose values were not read yet, if there is one.

        Raises:
            NonFiniteError: they are not finite; the optimizer did nothing in that step.
            RangeTestOverError: they are the last ones of a range test.
        """
        if self._unread is None:
            return
        step, learning_rate, names, values = self._unread
        self._unread = None
        if self._landed is not None:
            self._landed.synchronize()
        measured = dict(zip(names, values.tolist(), strict=True))
        self.check(step, learning_rate, measured["loss"], measured["grad_norm"])
        self._record(step, learning_rate, measured)

    def evaluation(
        self,
        step: int,
        of_weights: Sequence[Mapping[str, float]],
        weights: Mapping[str, float],
        batches: int,
        seconds: float,
        *,
        further: Mapping[str, float],
    ) -> dict[str, float]:
        """Records an evaluation and returns its values: `val_loss` is the sources' mean by weight.

        `of_weights`: each source's loss by the model's weights, and by averaged ones. `further`:
        what was measured besides, and is recorded alone.

        Raises:
            NonFiniteError: it is not finite.
        """
        loss, *averaged = (
            sum(weights[name] * value for name, value in losses.items()) / sum(weights.values())
            for losses in of_weights
        )
        losses = of_weights[0]
        values = {"val_loss": loss, "val_perplexity": perplexity(loss)}
        if averaged:
            values[VAL_LOSS_EMA] = averaged[0]
        if len(losses) > 1:
            values |= {f"val_loss/{name}": value for name, value in losses.items()}
        recorded = {**values, **further}
        self._events.emit("eval", step=step, values=recorded, batches=batches, seconds=seconds)
        self._lines.evaluation(step, loss, batches)
        self._metrics.add_evaluation(step, values)
        try:
            nan_guard.check(step, loss)
        except nan_guard.NonFiniteError as error:
            self._events.emit(
                "warning", code=error.code, step=step, message=str(error), values=values
            )
            raise
        return values

    def measured(self, step: int) -> dict[str, float]:
        """The losses that were measured at this very step, and the averages of the noise scale."""
        return self._metrics.at(step) | self.noise_scale.checkpoint_metrics

    def _record(self, step: int, learning_rate: float, measured: Mapping[str, float]) -> None:
        step_time_s, data_time_s = self.clock.step_ended()
        reported = {name: value for name, value in measured.items() if name != MICRO_NORM}
        micro_norm = measured.get(MICRO_NORM)
        values = {
            **reported,
            **self.noise_scale.take(step, micro_norm, measured["grad_norm"]),
            "lr": learning_rate,
            "clip_fraction": float(0.0 < self._max_norm < measured["grad_norm"]),
            "tokens": self._cost.curriculum.tokens_before(step),
            **self._cost.speed(step_time_s, data_time_s, self._cost.curriculum.tokens(step)),
            **peak_memory(),
        }
        self._events.emit("metric", step=step, values=values)
        self._lines.step(step, values)
        self._metrics.add_step(step, values)
        self._range_test.take(step, measured["loss"])

    def _record_non_finite(
        self, error: nan_guard.NonFiniteError, learning_rate: float, loss: float, grad_norm: float
    ) -> None:
        values = {"loss": loss, "lr": learning_rate, "grad_norm": grad_norm}
        self._events.emit("metric", step=error.step, values=values)
        self._events.emit(
            "warning", code=error.code, step=error.step, message=str(error), values=values
        )
