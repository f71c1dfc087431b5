"""The hooks of a run in LitGPT's loops: before, after and between optimizer steps."""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from trainer_runtime.core.config import SamplesConfig
from trainer_runtime.core.config.optimization import NO_CLIPPING
from trainer_runtime.core.frameworks import litgpt as written
from trainer_runtime.train.attempt.averaging import use_evaluated_weights, use_trained_weights
from trainer_runtime.train.attempt.config import RunConfig
from trainer_runtime.train.attempt.optimizer import make_optimizer, set_learning_rate
from trainer_runtime.train.attempt.optimizer_state import name_state
from trainer_runtime.train.litgpt.data import RunData
from trainer_runtime.train.litgpt.state import Trained
from trainer_runtime.train.litgpt.text_model import text_model_of
from trainer_runtime.train.loop.checkpoint_metrics import VAL_LOSS_EMA
from trainer_runtime.train.loop.drawing import TextModel
from trainer_runtime.train.loop.framework_run import FrameworkRun
from trainer_runtime.train.loop.gradient_layout import lay_out_gradients
from trainer_runtime.train.loop.recorded_samples import refuse_parts

# Targets that no loss is taken of, as in PyTorch.
_IGNORED = -100


class LoopLeftError(Exception):
    """Leaves LitGPT's loop after a signal, once the state is saved."""


class Loop:
    """Follows one attempt; LitGPT's own step counts are not used."""

    def __init__(self, attempt: FrameworkRun) -> None:
        """Raises: ConfigError: the checkpoint asked for is missing or damaged."""
        self.attempt = attempt
        self._checkpoint = attempt.choose_checkpoint()
        self._loss = torch.zeros(())
        self.grad_norm: Tensor | None = None
        self.model: Any = None
        self.dimensions: Mapping[str, int] = {}
        self._handled_step: int | None = None
        self._evaluated_step = attempt.step
        self._common = Trained.read_common(self._checkpoint) if self._checkpoint else {}
        self._validation_loss = self._common.get("validation_loss", math.nan)
        self._uncounted_steps = 0
        self._train_arguments: Any = None
        self.accumulation = attempt.config.batch.accumulation

    def make_optimizer(self) -> torch.optim.Optimizer:
        """The configured one of the model that Fabric has wrapped."""
        config, model = self.attempt.config, self.model
        optimizer = make_optimizer(model, config.optimizer, self.dimensions)
        if not shards(config):
            name_state(optimizer, model)
        return optimizer

    def serve(self, data: RunData, fabric: Any) -> None:
        """Moves the data to the checkpoint's position; called before LitGPT makes its loaders."""
        self._data = data
        data.follow(self.attempt.config, fabric.global_rank, fabric.world_size)
        if self._checkpoint is not None:
            data.seek(self.attempt.step, self._common["position"])

    def begin(self, trained: Trained, parameters: int, train_arguments: Any) -> None:
        """Loads the checkpoint's state once the model exists.

        `train_arguments`: those that LitGPT's loop goes by.
        """
        self._trained, self._train_arguments = trained, train_arguments
        self._data.fit_vocabulary(trained.model.config.padded_vocab_size)
        if self._checkpoint is not None:
            trained.load(self._checkpoint)
        self.attempt.average.begin(self._plain_model, self._checkpoint)
        self.attempt.begin(parameters)
        if self.attempt.step:
            wrapped = trained.model._forward_module
            lay_out_gradients(wrapped, self.attempt.config, self.attempt.world_size)
        self.attempt.time_forward(trained.model.module)

    def uncount_steps(self) -> None:
        """Corrects the logs of a loop that counts from 0 even when it resumes."""
        self._uncounted_steps = self.attempt.step
        if self._uncounted_steps:
            self._trained.fabric.print(
                "LitGPT numbers its lines from 1 again: "
                f"its step 1 is step {self._uncounted_steps + 1}"
            )

    def counted(
        self, metrics: Mapping[str, Any], step: int | None
    ) -> tuple[dict[str, Any], int | None]:
        """LitGPT's own metrics and iteration, with those of earlier attempts counted."""
        iterations = self._uncounted_steps * self.attempt.config.batch.accumulation
        behind = {"iter": iterations, "step": self._uncounted_steps}
        logged = {key: value + behind.get(key, 0) for key, value in metrics.items()}
        return logged, None if step is None else step + iterations

    def learning_rate(self) -> float:
        """The schedule's rate for the step that comes."""
        return self.attempt.curriculum.rate(min(self.attempt.step + 1, self.attempt.config.steps))

    def add_loss(self, loss: Tensor) -> None:
        self._loss = self._loss.to(loss.device) + loss.float()

    def before_step(self) -> None:
        """Clips if LitGPT has not, and raises on a non-finite step before it reaches the weights.

        Raises:
            NonFiniteError: the loss or the gradient is not finite; on every rank alike.
        """
        trained, config = self._trained, self.attempt.config
        if self.grad_norm is None:
            longest = config.optimizer.max_norm or NO_CLIPPING
            trained.fabric.clip_gradients(trained.model, trained.optimizer, max_norm=longest)
        mean = trained.fabric.all_reduce(self._loss, reduce_op="mean")
        assert self.grad_norm is not None
        self._step_values = {
            "loss": mean.item(),
            "lr": float(trained.optimizer.param_groups[0]["lr"]),
            "grad_norm": self.grad_norm.item(),
        }
        set_learning_rate(trained.optimizer, self._step_values["lr"])  # which LitGPT gives to all
        self._loss, self.grad_norm = torch.zeros(()), None
        # With fp16 an overflow only makes the scaler skip the step.
        norm = None if config.precision == "fp16" else self._step_values["grad_norm"]
        self.attempt.guard(self._step_values["loss"], norm)

    def after_step(self) -> None:
        self.attempt.end_step(self.attempt.step + 1, self._step_values)

    def between_steps(self) -> None:
        """Evaluates, saves and stops when due; called before every batch.

        Raises:
            LoopLeftError: the training was asked to end.
            NonFiniteError: the held-out loss is not finite.
        """
        step, is_first = self.attempt.step, self._handled_step is None
        if step == self._handled_step:
            return
        self._handled_step = step
        if is_first and self._checkpoint is not None:
            self._trained.restore_random_state(self._checkpoint, self.attempt.seed_of_rank)
        elif not is_first:
            self.evaluate_if_due()
            self._sample_if_due()
        if is_first and self.attempt.start_evaluation_is_due():
            self._evaluate()
        due = self.attempt.due()
        if due.save and (due.stop or not is_first):
            self._save()
        if due.stop:
            self.attempt.stopped()
            raise LoopLeftError
        at_border = self.attempt.is_at_border
        if self.attempt.ends_phase(self._data.of_ended_phase(step) if at_border else ()):
            raise LoopLeftError
        use_trained_weights(self._trained.optimizer)
        self._data.step_begins(step)
        if self.attempt.is_over:
            self._take_no_step()
        else:
            self._step_begins(step)

    def _take_no_step(self) -> None:
        """Has LitGPT's loop end at its next batch: each checks its end there before it trains."""
        self._trained.state["iter_num"] = written.ENDLESS
        self._train_arguments.epochs = 0

    def evaluate_if_due(self) -> Tensor:
        """The held-out loss as last measured, which is now if a measurement is due.

        Raises:
            NonFiniteError: it is not finite.
        """
        step = self.attempt.step
        if step != self._evaluated_step and self.attempt.evaluation_is_due():
            self._evaluated_step = step
            self._evaluate()
        return torch.tensor(self._validation_loss)

    def _step_begins(self, step: int) -> None:
        """Sets LitGPT's counter and length for the step that comes, where steps differ in size.

        LitGPT takes a step whenever its counter divides by the accumulation, and refuses counts of
        passes and tokens that fall.
        """
        curriculum, state, model = self.attempt.curriculum, self._trained.state, self._plain_model
        shape = curriculum.shape(step + 1)
        self.accumulation = shape.accumulation
        if curriculum.is_uniform:
            return
        counted = state["iter_num"] * max(1, model.max_seq_length // shape.seq_len)
        state["iter_num"] = -(-counted // shape.accumulation) * shape.accumulation
        model.max_seq_length = shape.seq_len
        if step >= self.attempt.config.steps:
            state["iter_num"] = written.ENDLESS

    @contextlib.contextmanager
    def _full_length(self) -> Iterator[None]:
        """For the time of an evaluation or a sample, whatever the phase's length."""
        model, length = self._plain_model, self._plain_model.max_seq_length
        if self.attempt.curriculum.is_uniform:
            yield
            return
        model.max_seq_length = self.attempt.config.data.seq_len
        yield
        model.max_seq_length = length

    @property
    def _plain_model(self) -> Any:
        module = self._trained.model.module
        return getattr(module, "_orig_mod", module)

    def _sample_if_due(self) -> None:
        model = self._plain_model  # else compiled again for each length
        fabric = self._trained.fabric

        def text_model(_: SamplesConfig) -> TextModel:
            refuse_parts(self.attempt.config)
            use_evaluated_weights(self._trained.optimizer)
            return text_model_of(model, self.attempt.config, fabric.device)

        with fabric.autocast(), self._full_length():
            self.attempt.sample_if_due(model, text_model)

    @contextlib.contextmanager
    def reading(self) -> Iterator[None]:
        """Counts what passes inside as the time that data takes."""
        started_s = time.perf_counter()
        yield
        self.attempt.clock.add_data_time(time.perf_counter() - started_s)

    @torch.no_grad()
    def _evaluate(self) -> None:
        """Every rank evaluates all of it: the same batches whatever their number."""
        started_s = time.perf_counter()
        model = self._trained.model
        model.eval()
        of_average: dict[str, float] = {}
        with self._full_length():
            losses = self._losses(model)
            with self.attempt.average.in_model() as is_averaged:
                if is_averaged:
                    of_average[VAL_LOSS_EMA] = self._mean(self._losses(model))
        model.train()
        self._record_evaluation(losses, of_average, time.perf_counter() - started_s)

    def _losses(self, model: Any) -> dict[str, float]:
        from litgpt.utils import chunked_cross_entropy

        use_evaluated_weights(self._trained.optimizer)
        fabric, losses = self._trained.fabric, {}
        for source, batches in self._data.validation_sets():
            of_batches, tokens = [], []
            for inputs, targets in map(fabric.to_device, batches):
                of_batches.append(chunked_cross_entropy(model(inputs), targets))
                tokens.append((targets != _IGNORED).sum())
            # By tokens, so that it does not matter how rows are put into batches.
            weights = torch.stack(tokens) / sum(tokens)
            losses[source] = (torch.stack(of_batches) * weights).sum().item()
        return losses

    def _record_evaluation(
        self, losses: Mapping[str, float], of_average: Mapping[str, float], seconds: float
    ) -> None:
        self._validation_loss = self._mean(losses)
        values = {"val_loss": self._validation_loss, **of_average}
        if len(losses) > 1:
            values |= {f"val_loss/{name}": loss for name, loss in losses.items()}
        self.attempt.end_evaluation(values, seconds, self.attempt.config.evaluation.batches)

    def _mean(self, losses: Mapping[str, float]) -> float:
        """The sources' mean by weight."""
        weights = {source.name: source.weight for source in self.attempt.config.data.evaluated}
        total = sum(weights[name] for name in losses)
        return sum(weights[name] * loss for name, loss in losses.items()) / total

    def _save(self) -> None:
        started_s = time.perf_counter()
        # A name of its own: the folder of the save before may still be on its way.
        folder = self.attempt.writing_folder / f"step-{self.attempt.step}"
        common: dict[str, Any] = {"position": self._data.position}
        if math.isfinite(self._validation_loss):
            common["validation_loss"] = self._validation_loss
        write = partial(self._write, folder, common)
        use_evaluated_weights(self._trained.optimizer)
        if self.attempt.world_size > 1:
            write()  # in which ranks wait for each other
        elif not self.attempt.try_write(write, folder):
            return
        self.attempt.saved(folder, time.perf_counter() - started_s)

    def _write(self, folder: Path, common: Mapping[str, Any]) -> None:
        self._trained.save(folder, self.attempt.step, common)
        if self.attempt.is_main:
            self.attempt.average.write(folder)


def shards(config: RunConfig) -> bool:
    """Whether each rank has only parts of the parameters."""
    return config.compute.strategy == "fsdp" and config.compute.processes > 1
