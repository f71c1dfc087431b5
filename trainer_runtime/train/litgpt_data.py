"""Our data as LitGPT's data modules, to be named in `litgpt.yaml` by `class_path`.

LitGPT asks a module for two loaders. What it has no word for, the run asks here: to go on where a
checkpoint stood, to tell the position, and for each source's fixed held-out batches.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from litgpt.data import DataModule
from torch import Tensor
from torch.utils.data import DataLoader, IterableDataset

from trainer_runtime.train.config import RunConfig
from trainer_runtime.train.data import Batch, Corpus, TrainingData, validation_batches


class RunData(DataModule):  # type: ignore[misc]  # LitGPT has no types
    """What a run asks of its data, beyond what LitGPT does."""

    def follow(self, config: RunConfig, rank: int, world_size: int) -> None:
        """Takes the run's configuration, and this rank's place; before LitGPT connects it."""
        self.config, self.rank, self.world_size = config, rank, world_size

    def seek(self, step: int, position: Any) -> None:
        """Goes to where a checkpoint stood after `step`."""
        raise NotImplementedError

    @property
    def position(self) -> Any:
        """How far the training has read, as JSON."""
        raise NotImplementedError

    def step_begins(self, steps_done: int) -> None:
        """Jumps ahead where `data.skip` asks for it."""

    def validation_sets(self) -> Iterator[tuple[str, Iterator[Batch]]]:
        """Each source's held-out inputs and targets, the same ones every time."""
        raise NotImplementedError


class TokenShards(RunData):
    """Windows of the prepared token shards, in the order of every pretraining of ours.

    Arguments:
        folder: The cache entry with the shards and their `meta.json`.
        weights: The sources' names and their weights in the mixture.
        seed: Decides the order.
    """

    def __init__(self, folder: Path, weights: dict[str, float], seed: int = 1337) -> None:
        super().__init__()
        self.folder, self.weights, self.seed = folder, weights, seed
        self.rank, self.world_size = 0, 1
        self._start: list[int] | None = None

    def connect(
        self, tokenizer: Any = None, batch_size: int = 1, max_seq_length: int | None = None
    ) -> None:
        self.batch_size, self.seq_len = batch_size, int(max_seq_length or 0)

    def setup(self, stage: str = "") -> None:
        """Raises: ShardsError: the shards are missing, damaged, or for another length."""
        self.corpus = Corpus.open(self.folder, list(self.weights), self.seq_len)
        self._data = TrainingData(
            self.corpus, list(self.weights.values()), self.seed, self.rank, self.world_size
        )
        if self._start is not None:
            self._data.seek(self._start)

    def seek(self, step: int, position: Any) -> None:
        self._start = position

    @property
    def position(self) -> list[int]:
        return self._data.position

    def step_begins(self, steps_done: int) -> None:
        for skip in self.config.data.skip:
            if skip.at_step == steps_done:
                self._data.skip(skip.sequences)

    def train_dataloader(self) -> DataLoader[Tensor]:
        # In this process and in no other, so that the position is that of the batch in hand.
        return DataLoader(_Endless(self._data, self.batch_size), batch_size=None)

    def val_dataloader(self) -> DataLoader[Tensor]:
        """All held-out windows in turn; a run evaluates on `validation_sets` instead."""
        return DataLoader(_HeldOut(self.corpus, self.batch_size), batch_size=None)

    def validation_sets(self) -> Iterator[tuple[str, Iterator[Batch]]]:
        batches = self.config.evaluation.batches
        for name, shard in zip(self.corpus.names, self.corpus.validation, strict=True):
            yield name, validation_batches(shard, batches, self.batch_size)


class _Endless(IterableDataset[Tensor]):
    def __init__(self, data: TrainingData, batch_size: int) -> None:
        self._data, self._batch_size = data, batch_size

    def __iter__(self) -> Iterator[Tensor]:
        while True:
            yield _windows(self._data.next_batch(self._batch_size))


class _HeldOut(IterableDataset[Tensor]):
    def __init__(self, corpus: Corpus, batch_size: int) -> None:
        self._corpus, self._batch_size = corpus, batch_size

    def __iter__(self) -> Iterator[Tensor]:
        for shard in self._corpus.validation:
            every = -(-len(shard) // self._batch_size)
            for batch in validation_batches(shard, every, self._batch_size):
                yield _windows(batch)


def _windows(batch: Batch) -> Tensor:
    """Inputs and targets as LitGPT's `pretrain` cuts them itself: (B, seq_len + 1)."""
    inputs, targets = batch
    return torch.cat((inputs, targets[:, -1:]), dim=1)
