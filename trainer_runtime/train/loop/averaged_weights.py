"""The averaged weights of `checkpoint.ema` in a training whose loop is a framework's."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from torch import nn

from trainer_runtime.train.attempt.config import ConfigError, RunConfig
from trainer_runtime.train.attempt.weight_average import AVERAGES, WeightAverage
from trainer_runtime.train.checkpoints.tensors import read_tensors, write_tensors


class AveragedWeights:
    """Follows the weights of one attempt; does nothing without `checkpoint.ema`."""

    def __init__(self, config: RunConfig) -> None:
        self._config = config
        self._average: WeightAverage | None = None

    def begin(self, model: nn.Module, checkpoint: Path | None) -> None:
        """Takes up the average of the checkpoint, else begins with the model's weights; to be
        called once these are those that the attempt begins with.

        Raises:
            ConfigError: no rank has the whole model, or the average is another model's.
        """
        decay, compute = self._config.checkpoint.ema, self._config.compute
        if decay is None:
            return
        if not compute.is_whole_on_each_rank:
            raise ConfigError(
                f"checkpoint.ema: under compute.strategy {compute.strategy} ranks have parts of "
                "the weights; take ddp"
            )
        self._average = WeightAverage(model, decay)
        saved = None if checkpoint is None else checkpoint / AVERAGES
        self._average.begin(read_tensors(saved) if saved is not None and saved.exists() else None)

    def update(self, step: int) -> None:
        """Takes in the weights after `step` steps."""
        if self._average is not None:
            self._average.update(step)

    @contextlib.contextmanager
    def in_model(self) -> Iterator[bool]:
        """For the time in which the model has the averaged weights; False: none are kept."""
        if self._average is None:
            yield False
            return
        with self._average.in_model():
            yield True

    def write(self, folder: Path) -> None:
        """Puts the averages beside what the framework wrote."""
        if self._average is not None:
            tensors = {name: tensor.cpu() for name, tensor in self._average.tensors.items()}
            with (folder / AVERAGES).open("wb") as file:
                write_tensors(file.write, tensors)
