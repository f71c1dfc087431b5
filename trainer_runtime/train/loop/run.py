"""One attempt at a training: everything around the model and the loop.

A script hands its loop to `run`, which turns the ways a training can end into exit codes. The loop
asks the `TrainingRun` for steps and batches and passes it losses; the run resumes, guards, records,
and says when to evaluate and to save.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path

import torch
from torch import Tensor, nn

from trainer_runtime.core.config import SamplesConfig
from trainer_runtime.core.config.curriculum import Curriculum, Shape
from trainer_runtime.train.attempt import nan_guard
from trainer_runtime.train.attempt.averaging import use_evaluated_weights, use_trained_weights
from trainer_runtime.train.attempt.config import ConfigError, read_config, refuse_another_script
from trainer_runtime.train.attempt.device import Device
from trainer_runtime.train.attempt.events import events_of
from trainer_runtime.train.attempt.exit_codes import (
    PhaseMissedError,
    StopRequestedError,
    ending,
)
from trainer_runtime.train.attempt.objective import Objective
from trainer_runtime.train.attempt.optimizer import clip_gradients, skips_by_itself
from trainer_runtime.train.attempt.weight_average import WeightAverage
from trainer_runtime.train.checkpoints import random_state, restore
from trainer_runtime.train.checkpoints.checkpointer import (
    FINAL,
    Checkpointer,
    Trained,
)
from trainer_runtime.train.data.batches import Batch, Corpus, TrainingData, validation_batches
from trainer_runtime.train.data.tokenizers import end_of_text, tokenizer_of
from trainer_runtime.train.loop import activations, startup
from trainer_runtime.train.loop.drawing import NextLogits, TextModel
from trainer_runtime.train.loop.early_stopping import EarlyStopping
from trainer_runtime.train.loop.phase_borders import PhaseBorders
from trainer_runtime.train.loop.range_test import ran_whole
from trainer_runtime.train.loop.recorded_samples import sample_if_due
from trainer_runtime.train.loop.recorder import MICRO_NORM, Recorder
from trainer_runtime.train.loop.report import Lines
from trainer_runtime.train.loop.signals import StopSignal
from trainer_runtime.train.loop.speed import Cost
from trainer_runtime.train.loop.started import record_start
from trainer_runtime.train.loop.step_profiler import StepProfiler
from trainer_runtime.train.loop.thread_waiting import ThreadWaiting

# The loss of hidden states by an output layer's weight and by targets.
LinearLoss = Callable[[Tensor, Tensor, Tensor], Tensor]
# After so many steps everything that lives as long as the training has been allocated.
_WARM_STEPS = 3


def run(train: Callable[[TrainingRun], None], config_path: Path, **choices: str) -> int:
    """Runs one attempt with the run's folder as working folder; the process's exit code.

    `choices` are those that the script was rendered by; a config that asks for others is refused.
    """
    startup.end_imports()
    stop = StopSignal()
    stop.install()

    def whole() -> None:
        attempt = TrainingRun(config_path, stop)
        try:
            refuse_another_script(attempt.config, choices)
            if not ran_whole(attempt.config, lambda: train(attempt)):
                attempt.end_range_test()
        finally:
            attempt.close()

    try:
        return ending(whole)
    finally:
        stop.ignore()


class TrainingRun:
    """The state of one attempt. `step` counts finished optimizer steps."""

    def __init__(self, config_path: Path, stop: StopSignal) -> None:
        """Raises: ConfigError, ShardsError: see `read_config`, `Device`, `Corpus`."""
        self.config = config = read_config(config_path)
        self.curriculum = Curriculum.of(config)
        self._hardware = Device.choose(config)
        self.device = self._hardware.device
        self.scaler = self._hardware.scaler()
        self.objective = Objective(config.optimizer)
        names = [source.name for source in config.data.sources]
        self._corpus = Corpus.open(config.data.folder, names, config.data.seq_len)
        if self._corpus.vocab_size > config.model.vocab_size:
            raise ConfigError(
                f"model.vocab_size {config.model.vocab_size} is less than the tokenizer's "
                f"{self._corpus.vocab_size}"
            )
        random_state.seed(config.seed)
        self._weights = {source.name: source.weight for source in config.data.evaluated}
        weights = [source.weight for source in config.data.sources]
        self._data = TrainingData(self._corpus, weights, config.seed)
        self._events = events_of(config, config_path.parent / "events.jsonl")
        self._phases = PhaseBorders(self.curriculum, self._events.emit)
        self._early = EarlyStopping(config, self._events.emit)
        self._stop, self._folder = stop, config_path.parent
        self._thread_waiting = None if self._hardware.is_cuda else ThreadWaiting()
        self._micro_norm: dict[str, Tensor] = {}
        self.step = 0

    def begin(self, model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
        """Restores the state to resume from, or starts new, and records which.

        Raises:
            ConfigError: the checkpoint asked for is damaged, or is of another model.
            PhaseMissedError: it is the border of a phase that has not reached its success.
        """
        self._model, self._optimizer = model, optimizer
        decay = self.config.checkpoint.ema
        self._average = None if decay is None else WeightAverage(model, decay)
        trained = Trained(model, optimizer, self._average)
        self._checkpointer = Checkpointer(
            self.config, self._events, trained, self.scaler, self._data
        )
        self.step, resumed, skipped = self._checkpointer.start()
        self._start_step = self.step
        parameters = sum(parameter.numel() for parameter in model.parameters())
        cost = Cost.of(self.curriculum, parameters, self._hardware.peak_flops)
        lines = Lines(self.config.steps)
        self._recorder = Recorder(
            self._events,
            lines,
            cost,
            self.config.optimizer.max_norm,
            skips_overflow=self.scaler.is_enabled(),
        )
        self._profiler = StepProfiler(
            self.config, self._folder, self._recorder.clock, self._events.emit
        )
        self._record_start(parameters, resumed, skipped)
        metrics, by_user = self._checkpointer.restored_metrics, self.config.attempt.is_by_user
        self._recorder.noise_scale.begin(metrics)
        self._early.begin(self.step, metrics, by_user=by_user)
        missed = self._phases.begin(self.step, metrics, by_user=by_user)
        if missed is not None:
            raise PhaseMissedError(missed)
        if self._early.target < self.config.steps:
            self._early.report()

    def steps(self) -> Iterator[int]:
        """The numbers of the steps to do, from 1.

        Raises:
            StopRequestedError: a signal came, and the state was saved.
            NotSavedError: a signal came, and the state could not be saved.
        """
        while self.step < self._early.target:
            if self._stop:
                self._save_last()
                raise StopRequestedError(f"{self._stop.name}: saved at step {self.step}")
            weights, shape = self.curriculum.weights(self.step + 1), self._shape
            self._data.take(weights, shape.seq_len)
            for skip in self.config.data.skip:
                if skip.at_step == self.step:
                    self._data.skip(skip.sequences)
            self._recorder.clock.resume()
            yield self.step + 1

    def learning_rate(self, step: int) -> float:
        """The curriculum's rate for a step."""
        return self.curriculum.rate(step)

    def accumulation(self, step: int) -> int:
        """How many micro-batches make up a step."""
        return self.curriculum.shape(step).accumulation

    def next_batch(self) -> Batch:
        """The next micro-batch's inputs and targets on the device."""
        started_s = time.perf_counter()
        batch = self._hardware.put(self._data.next_batch(self._shape.micro_batch))
        self._recorder.clock.add_data_time(time.perf_counter() - started_s)
        return batch

    def autocast(self) -> AbstractContextManager[object]:
        """The context of forward passes, by the configured precision."""
        return self._hardware.autocast()

    @property
    def residual_dtype(self) -> torch.dtype:
        """What blocks add their results in."""
        return self._hardware.residual_dtype

    @property
    def fp8_loss(self) -> LinearLoss | None:
        """The output layer with its loss, where it is to compute in fp8.

        Raises:
            ConfigError: the device or this PyTorch can't.
        """
        return self._hardware.fp8_loss(self.config)

    @property
    def document_end(self) -> int | None:
        """The token that no attention goes beyond; None where it may see whole windows.

        Raises:
            ConfigError: `data.document_masks`, and the token is not known.
        """
        if not self.config.data.document_masks:
            return None
        end = end_of_text(self.config.data)
        if end is None:
            raise ConfigError("data.document_masks needs a tokenizer with an end-of-text token")
        return end

    def backward(self, loss: Tensor) -> None:
        """Adds the loss's gradients to the parameters'; in fp16 scaled, until `scaler.unscale_`."""
        torch.autograd.backward(self.scaler.scale(loss))
        if not self._micro_norm and self._recorder.noise_scale.is_due(self.step + 1):
            groups = self._optimizer.param_groups
            parameters = (parameter for group in groups for parameter in group["params"])
            self._micro_norm[MICRO_NORM] = clip_gradients(parameters, 0.0)

    def guard(self, loss: Tensor, grad_norm: Tensor) -> None:
        """Keeps a non-finite step from the weights; to be called before the optimizer's step.

        Raises:
            NonFiniteError: at once on a CPU, and with an optimizer that can't skip a step by
                itself; else `end_step` or a save raises it.
        """
        is_cpu, scales = self.device.type == "cpu", self.scaler.is_enabled()
        if is_cpu or not (scales or skips_by_itself(self._optimizer)):
            self._recorder.check(self.step + 1, self._present_rate, loss.item(), grad_norm.item())
        elif not scales:
            nan_guard.skip_if_non_finite(self._optimizer, loss, grad_norm)

    def end_step(self, loss: Tensor, grad_norm: Tensor) -> None:
        """Counts the step and records it; on a GPU its values are read when the next one ends.

        Raises:
            NonFiniteError: the values that were read are not finite.
        """
        self.step += 1
        if self._average is not None:
            self._average.update(self.step)
        values = {"loss": loss, "grad_norm": grad_norm, **self.objective.take()} | self._micro_norm
        self._micro_norm = {}
        self._recorder.end_step(self.step, self._present_rate, values)
        if self._thread_waiting is not None:
            self._thread_waiting.step_ended(time.monotonic())
        steps_done = self.step - self._start_step
        if steps_done == 1:
            self._checkpointer.first_step_done()
        if steps_done == _WARM_STEPS:
            # What lives now lives to the end: the collector need not walk it again and again.
            gc.collect()
            gc.freeze()
            gc.disable()
        self._profiler.step_ended(self.step)

    def evaluation_is_due(self) -> bool:
        """True after every `eval.every_steps` steps, at the end of a phase and of the run."""
        return self._phases.evaluation_is_due(self.step)

    def start_evaluation_is_due(self) -> bool:
        """True before the first step of a phase that is compared with its start."""
        return self._phases.needs_start_value(self.step)

    def validation_sets(self) -> Iterator[tuple[str, Iterator[Batch]]]:
        """Each source's name and its held-out batches, the same ones every time.

        Until `end_evaluation` the model has the weights that are evaluated.
        """
        use_evaluated_weights(self._optimizer)
        chosen = self.config.evaluation
        corpus = self._corpus
        for name, shard in zip(corpus.validation_names, corpus.validation, strict=True):
            batches = validation_batches(
                shard, chosen.batches, chosen.batch_size, at_most=self.config.batch.micro_batch
            )
            yield name, map(self._hardware.put, batches)

    def weights_in_turn(self) -> Iterator[None]:
        """The model has its own weights, then those of `checkpoint.ema`, if they are kept."""
        yield
        if self._average is not None:
            with self._average.in_model():
                yield

    def end_evaluation(self, of_weights: Sequence[Mapping[str, float]], seconds: float) -> None:
        """Records a mean loss per source, of the model's weights and then of the averaged ones;
        raises NonFiniteError if one is not finite."""
        units = self._hidden_units()
        use_trained_weights(self._optimizer)
        self._recorder.catch_up()
        batches = self.config.evaluation.batches
        values = self._recorder.evaluation(
            self.step, of_weights, self._weights, batches, seconds, further=units
        )
        self._phases.evaluated(self.step, values)
        if self._early.evaluated(self.step, values):
            self._early.end_at(self.step)
        gc.collect()

    def _hidden_units(self) -> dict[str, float]:
        """What the hidden units do on held-out tokens of the first source, by the weights that are
        evaluated."""
        _, batches = next(self.validation_sets())
        self._model.eval()
        with self.autocast():
            measured = activations.measure(self._model, (inputs for inputs, _ in batches))
        self._model.train()
        return measured

    def sample_if_due(self, model: nn.Module, next_logits: NextLogits) -> None:
        """Records texts after every `eval.samples.every` steps and after the last one."""

        def text_model(_: SamplesConfig) -> TextModel:
            self._recorder.catch_up()
            use_evaluated_weights(self._optimizer)
            return TextModel.of(next_logits, tokenizer_of(self.config.data))

        with self.autocast():
            sample_if_due(self.config, self.step, model, text_model, self._events.emit)
        use_trained_weights(self._optimizer)

    def save_if_due(self) -> None:
        """Saves where the cadence asks for it, which waits for a copy in memory only; ends a phase.

        Raises:
            PhaseMissedError: the phase has not reached its success, and the supervisor is to act.
            NotSavedError: so, and the state could not be saved.
        """
        is_border = self._phases.is_border(self.step)
        if is_border and self.step == self.config.steps:
            self._save_last()
        elif self._early.is_best(self.step) or self._checkpointer.is_due(
            self.step, self._recorder.clock.last_step_time_s
        ):
            self._recorder.catch_up()
            self._checkpointer.save(self.step, self._measured())
        missed = self._phases.end(self.step, self._data.mix["of_mix"]) if is_border else None
        if missed is not None:
            self._save_last()
            raise PhaseMissedError(missed)

    def finish(self) -> None:
        """The last checkpoint, verified; then ./final; then `completed`.

        Raises:
            NotSavedError: one of them can't be written.
        """
        self._save_last()
        self._checkpointer.export(self.step, self._measured())
        self._events.emit("completed", step=self.step, final=FINAL.name)

    def end_range_test(self) -> None:
        """`completed`, before the last step and without a model."""
        self._events.emit("completed", step=self.step)

    def close(self) -> None:
        """Lets a save in flight come to its end, and the events reach the disk."""
        if hasattr(self, "_checkpointer"):
            self._checkpointer.close()
        if hasattr(self, "_profiler"):
            self._profiler.close()
        self._events.close()

    def _save_last(self) -> None:
        self._recorder.catch_up()
        self._checkpointer.save_last(self.step, self._measured())

    def _measured(self) -> dict[str, float]:
        own = self._phases.checkpoint_metrics | self._early.checkpoint_metrics
        return self._recorder.measured(self.step) | own

    @property
    def _shape(self) -> Shape:
        return self.curriculum.shape(self.step + 1)

    @property
    def _present_rate(self) -> float:
        # What the loop really set, also in a script whose schedule someone changed.
        return float(self._optimizer.param_groups[0]["lr"])

    def _record_start(self, parameters: int, resumed: bool, skipped: list[restore.Skipped]) -> None:
        record_start(
            self._events.emit,
            partial(print, flush=True),
            self.config,
            self._hardware,
            resumed_step=self.step if resumed else None,
            skipped=skipped,
            parameters=parameters,
            peak_flops=self._hardware.peak_flops,
        )
        print(
            f"{'resuming from' if resumed else 'starting at'} step {self.step} of "
            f"{self.config.steps} | {parameters:,} parameters | {self.device} "
            f"{self.config.precision} | {self.curriculum.tokens(self.step + 1):,} tokens a step",
            flush=True,
        )
