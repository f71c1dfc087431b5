"""Connects Hugging Face Trainer, and TRL's trainers that derive from it, to a run.

Trainer logs after every step; the callback records and checks the step from that log and decides
whether to save or stop. The order within a step is Trainer's: optimizer, log, evaluation, save.
"""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from accelerate.state import AcceleratorState, GradientState
from torch import nn
from transformers import (
    TrainerCallback,
    TrainerControl,
    TrainerState,
    TrainingArguments,
)
from transformers.trainer_pt_utils import get_model_param_count
from transformers.trainer_utils import PREFIX_CHECKPOINT_DIR

from trainer_runtime.core.config import SamplesConfig
from trainer_runtime.train.attempt.averaging import use_evaluated_weights
from trainer_runtime.train.attempt.optimizer import clip_gradients
from trainer_runtime.train.data.sequences import Drawn, write_position
from trainer_runtime.train.hf.evaluations import (
    EVALUATION,
    evaluation_values,
    losses_of_averages,
)
from trainer_runtime.train.hf.optimizer import TrainerOptimizer
from trainer_runtime.train.hf.random_numbers import seed_new_ranks
from trainer_runtime.train.hf.text_model import text_model_of
from trainer_runtime.train.hf.universal import forget_converted
from trainer_runtime.train.hf.workers import keep_workers
from trainer_runtime.train.loop.drawing import TextModel
from trainer_runtime.train.loop.framework_run import FrameworkRun
from trainer_runtime.train.loop.gradient_layout import lay_out_gradients
from trainer_runtime.train.loop.noise_scale import NoiseScale
from trainer_runtime.train.loop.recorded_samples import refuse_parts

_LOGS_KEPT = 1000


class _OverError(Exception):
    """Leaves Trainer's loop before its first step: the checkpoint is where the run has ended."""


class TrainmasterCallback(TrainerCallback):
    """Reports a trainer's progress to the attempt, and asks the trainer to save and to stop."""

    def __init__(self, attempt: FrameworkRun, sequences: Drawn | None = None) -> None:
        """`sequences` are the training's, if their position belongs in the checkpoints."""
        self._attempt = attempt
        self._sequences = sequences
        self._gradients_are_finite = True
        self._evaluated: dict[str, float] = {}
        self._logged_at_s = 0.0
        self._is_stopping = self._is_missed = False
        self._steps, self._summed_loss = 0, 0.0
        self._is_written = True
        self._wrapped: Callable[[], Any] = lambda: None
        self._optimizer = TrainerOptimizer(attempt.config)
        self._noise_scale = NoiseScale(attempt.curriculum, is_measured=self._sees_micro_batches())
        self._micro_norm: float | None = None
        self._evaluate: Callable[[], object] = lambda: None
        self._averaged_losses: Callable[[], Mapping[str, float]] = dict

    def attend(self, trainer: Any) -> None:
        """Gives it the configured optimizer. Reports a checkpoint that a full disk prevents, and
        lets the training continue; one that another number of ranks has saved gives no rank another
        one's random numbers."""
        self._optimizer.give_to(trainer)
        keep_workers(trainer)
        seed_new_ranks(trainer, self._attempt.seed_of_rank, self._attempt.world_size)
        self._wrapped, self._evaluate = lambda: trainer.model_wrapped, trainer.evaluate
        self._averaged_losses = lambda: losses_of_averages(trainer, self._attempt)
        self._leave_where_over(trainer)
        save: Callable[..., None] = trainer._save_checkpoint

        def save_checkpoint(*arguments: Any) -> None:
            use_evaluated_weights(trainer.optimizer)
            written = checkpoint_folder(trainer.args, trainer.state)

            def write() -> None:
                save(*arguments)
                if self._attempt.is_main:
                    self._attempt.average.write(written)

            self._is_written = self._attempt.try_write(write, written)

        trainer._save_checkpoint = save_checkpoint

    def _leave_where_over(self, trainer: Any) -> None:
        """Ends the training after an evaluation that ends it early, and before a first step where
        it has ended; saves the best ones."""
        evaluate, train = trainer._evaluate, trainer.train

        def evaluate_and_decide(*arguments: Any, **options: Any) -> Any:
            metrics = evaluate(*arguments, **options)
            self._end_evaluation()
            if self._attempt.is_evaluation_saved:
                trainer.control.should_save = True
            if self._attempt.is_over:
                trainer.control.should_training_stop = True
            return metrics

        def train_unless_over(*arguments: Any, **options: Any) -> Any:
            with contextlib.suppress(_OverError):
                return train(*arguments, **options)

        trainer._evaluate, trainer.train = evaluate_and_decide, train_unless_over

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **trained: Any
    ) -> None:
        divide_gradients_once()
        forget_converted(self._attempt, trained["optimizer"])
        self._optimizer.take_present_settings(
            trained["optimizer"], trained["lr_scheduler"], self._attempt.curriculum
        )
        self._attempt.average.begin(trained["model"], self._attempt.checkpoints.resumed)
        self._attempt.begin(get_model_param_count(trained["model"], trainable_only=True))
        self._noise_scale.begin(self._attempt.restored_metrics)
        if self._attempt.is_over:
            save_whole_models()
            raise _OverError
        if self._attempt.step and trained["model"].get_output_embeddings() is not None:
            lay_out_gradients(self._wrapped(), self._attempt.config, self._attempt.world_size)
        self._attempt.time_forward(trained["model"])

    def on_step_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **trained: Any
    ) -> None:
        self._end_evaluation()
        if self._attempt.start_evaluation_is_due():
            self._evaluate()
            self._end_evaluation()
        self._attempt.clock.data_arrived()

    def on_substep_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **trained: Any
    ) -> None:
        """Takes the norm of a step's first micro-batch now and then, for the noise scale."""
        if self._micro_norm is None and self._noise_scale.is_due(state.global_step + 1):
            self._micro_norm = clip_gradients(trained["model"].parameters(), 0.0).item()

    def on_pre_optimizer_step(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **trained: Any
    ) -> None:
        """Removes non-finite gradients before the optimizer's step; its log ends the attempt.

        Every optimizer leaves parameters without a gradient unchanged. In fp16 the scaler does
        this.
        """
        if args.fp16:
            return
        # A rank of a sharded model sees only its own part.
        is_broken = not gradients_are_finite(trained["model"])
        self._gradients_are_finite = not self._attempt.on_any_rank(is_broken)
        if not self._gradients_are_finite:
            for parameter in trained["model"].parameters():
                parameter.grad = None

    def on_log(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        logs: Mapping[str, Any] | None = None,
        **trained: Any,
    ) -> None:
        """Records a step, an evaluation or the final summary, whichever is logged.

        Raises:
            NonFiniteError: the step's loss or gradient is not finite.
        """
        values = {name: float(value) for name, value in (logs or {}).items() if _is_number(value)}
        if any(name.startswith(EVALUATION) for name in values):
            self._evaluated |= values
        elif "loss" in values:
            self._end_step(args, state, control, values)
            self._sample_if_due(trained["model"], trained["processing_class"], trained["optimizer"])
        elif "train_loss" in values:
            self._end_training()
        else:
            self._attempt.record_values(values)
        self._logged_at_s = time.perf_counter()

    def on_evaluate(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        metrics: Mapping[str, Any] | None = None,
        **trained: Any,
    ) -> None:
        # Several evaluation sets come one by one; their values are merged before the next event.
        self._evaluated |= {
            name: float(value) for name, value in (metrics or {}).items() if _is_number(value)
        }
        self._attempt.clock.resume()
        self._logged_at_s = time.perf_counter()

    def on_save(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **trained: Any
    ) -> None:
        """Seals a checkpoint from what all ranks have written.

        Raises:
            NonFiniteError: the evaluation before it is not finite.
        """
        self._end_evaluation()
        if not self._is_written:
            self._end_phase(control)
            return
        if self._attempt.world_size > 1:
            torch.distributed.barrier()
        written = checkpoint_folder(args, state)
        if self._sequences is not None and self._attempt.is_main:
            write_position(written, self._sequences.position(state.global_step))
        stall_s = time.perf_counter() - self._logged_at_s
        self._attempt.saved(written, stall_s, self._noise_scale.checkpoint_metrics)
        self._end_phase(control)

    def on_train_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **trained: Any
    ) -> None:
        self._end_evaluation()
        if self._is_missed:
            return
        if self._is_stopping:
            self._attempt.stopped()
        else:
            save_whole_models()

    def _end_step(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        values: dict[str, float],
    ) -> None:
        attempt = self._attempt
        grad_norm = values.get("grad_norm")
        if not self._gradients_are_finite and (grad_norm is None or math.isfinite(grad_norm)):
            grad_norm = math.nan
        attempt.guard(values["loss"], None if args.fp16 else grad_norm)
        attempt.end_step(state.global_step, self._of_a_step(values))
        self._steps += 1
        self._summed_loss += values["loss"]
        # The events hold every step; each checkpoint would hold all of them again.
        del state.log_history[:-_LOGS_KEPT]
        due = attempt.due()
        self._is_stopping = due.stop
        control.should_save = control.should_save or due.save
        control.should_training_stop = control.should_training_stop or due.stop
        # Trainer's own interval leaves out the last step.
        control.should_evaluate = control.should_evaluate or attempt.evaluation_is_due()

    def _sample_if_due(self, model: Any, tokenizer: Any, optimizer: Any) -> None:
        def text_model(samples: SamplesConfig) -> TextModel:
            refuse_parts(self._attempt.config)
            use_evaluated_weights(optimizer)
            return text_model_of(model, tokenizer, chat=samples.chat)

        self._attempt.sample_if_due(model, text_model)

    def _of_a_step(self, values: Mapping[str, float]) -> dict[str, float]:
        recorded = dict(values)
        recorded["lr"] = recorded.pop("learning_rate")
        norm, step = values.get("grad_norm"), self._attempt.step + 1
        recorded |= self._noise_scale.take(step, self._micro_norm, norm)
        self._micro_norm = None
        if self._sequences is not None:
            # Trainer sees the run's sequences as one data set, so its epoch is not the data's.
            recorded.pop("epoch", None)
        return recorded

    def _end_phase(self, control: TrainerControl) -> None:
        records = self._attempt.is_main and self._attempt.is_at_border
        if self._attempt.ends_phase(self._of_ended_phase() if records else ()):
            self._is_missed = control.should_training_stop = True

    def _sees_micro_batches(self) -> bool:
        """Whether gradients are whole after each, and all of them have as many tokens."""
        config = self._attempt.config
        return (
            config.method == "pretrain"
            and config.precision != "fp16"
            and config.compute.is_whole_on_each_rank
        )

    def _of_ended_phase(self) -> Sequence[int]:
        """How many sequences of each source it has drawn, where that is known."""
        sequences = self._sequences
        return () if sequences is None else sequences.of_ended_phase(self._attempt.step)

    def _end_training(self) -> None:
        """Records the mean loss of this attempt's steps.

        Trainer's own mean covers all of the run's steps or only these, depending on its version.
        """
        if self._steps:
            self._attempt.record_values({"train_loss_mean": self._summed_loss / self._steps})

    def _end_evaluation(self) -> None:
        if not self._evaluated:
            return
        weights = {source.name: source.weight for source in self._attempt.config.data.evaluated}
        values = {**evaluation_values(self._evaluated, weights), **self._averaged_losses()}
        seconds = sum(s for name, s in self._evaluated.items() if name.endswith("_runtime"))
        self._evaluated = {}
        self._attempt.end_evaluation(values, seconds, self._attempt.config.evaluation.batches)


def checkpoint_folder(args: TrainingArguments, state: TrainerState) -> Path:
    """Where Trainer writes the present step's checkpoint."""
    return Path(str(args.output_dir)) / f"{PREFIX_CHECKPOINT_DIR}-{state.global_step}"


def divide_gradients_once() -> None:
    """Lets only Trainer average over accumulated batches.

    Trainer 5 also passes their number to Accelerate, whose `backward` then divides by it again
    (transformers issue 40709). DeepSpeed does not use this setting.
    """
    GradientState().plugin_kwargs["num_steps"] = 1


def save_whole_models() -> None:
    """Saves FSDP-sharded models in one piece from now on, in the common format."""
    plugin = getattr(AcceleratorState(), "fsdp_plugin", None)
    if plugin is not None:
        plugin.set_state_dict_type("FULL_STATE_DICT")


def gradients_are_finite(model: nn.Module) -> bool:
    """Whether every gradient of this rank is finite, in one pass over them."""
    gradients = [
        gradient.to_local() if hasattr(gradient, "to_local") else gradient
        for gradient in (parameter.grad for parameter in model.parameters())
        if gradient is not None
    ]
    if not gradients:
        return True
    norms = torch._foreach_norm(gradients)
    first = norms[0]
    total = torch.stack([norm.to(first.device, torch.float32) for norm in norms]).sum()
    return bool(torch.isfinite(total))


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)
