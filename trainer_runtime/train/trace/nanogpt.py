"""The steps of a nanogpt script, by its own model and loop."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from trainer_runtime.core.answers.traced import MemoryTrace
from trainer_runtime.core.config import RunConfig
from trainer_runtime.train.attempt.config import ConfigError, sizes_of
from trainer_runtime.train.attempt.device import Device
from trainer_runtime.train.attempt.objective import Objective
from trainer_runtime.train.attempt.weight_average import WeightAverage
from trainer_runtime.train.trace.script import loaded_script
from trainer_runtime.train.trace.tracker import Tracker
from trainer_runtime.train.trace.without_data import autocast


def trace(config: RunConfig, folder: Path) -> MemoryTrace:
    """Of the script in the folder.

    Raises:
        ConfigError: it computes by kernels that GPUs alone have.
    """
    if config.compute.fp8_lm_head:
        raise ConfigError("compute.fp8_lm_head computes by kernels that GPUs alone have")
    sizes_of(config)
    script = loaded_script(folder)
    if config.compute.device == "cuda":
        script.LONGEST_WITH_SCORES = {}  # of CPUs
    script.GPT.to = lambda model, _: model  # tensors without data can't be exchanged in it
    attempt = _TracedRun(config)
    script.train(attempt)
    return attempt.tracker.answer()


class _TracedRun:
    """In place of a `TrainingRun`: nothing is read, recorded or saved."""

    fp8_loss = None
    device = torch.device("cpu")

    def __init__(self, config: RunConfig) -> None:
        self.config, self.tracker = config, Tracker(config)
        self.objective = Objective(config.optimizer)
        self.document_end = 0 if config.data.document_masks else None
        device = torch.device(config.compute.device)
        self.residual_dtype = Device(device, config.precision, None, "").residual_dtype
        self.scaler = torch.amp.GradScaler("cpu", enabled=False)
        self.steps, self.accumulation = self.tracker.steps, self.tracker.accumulation
        self._average: WeightAverage | None = None

    def begin(self, model: nn.Module, optimizer: Optimizer) -> None:
        decay = self.config.checkpoint.ema
        self._average = None if decay is None else WeightAverage(model, decay)
        averages = () if self._average is None else self._average.tensors.values()
        self.tracker.begin(model, optimizer, averages)

    def learning_rate(self, _: int) -> float:
        return self.config.optimizer.lr

    def next_batch(self) -> tuple[Tensor, Tensor]:
        self.tracker.begin_forward()
        size = self.tracker.shape.micro_batch, self.tracker.shape.seq_len
        return torch.zeros(size, dtype=torch.long), torch.zeros(size, dtype=torch.long)

    def autocast(self) -> torch.autocast:
        return autocast(self.config.precision)

    def backward(self, loss: Tensor) -> None:
        self.tracker.begin_backward()
        torch.autograd.backward(loss)

    def guard(self, *_: Tensor) -> None:
        self.tracker.begin_optimizer()

    def end_step(self, *_: Tensor) -> None:
        if self._average is not None:
            self._average.update(1)

    def start_evaluation_is_due(self) -> bool:
        return False

    def evaluation_is_due(self) -> bool:
        return False

    def sample_if_due(self, *_: object) -> None:
        pass

    def save_if_due(self) -> None:
        pass

    def finish(self) -> None:
        pass
