"""The order in which a training reads its rows, fixed before it starts.

A row's place depends on the configuration alone: rows are reshuffled every epoch from the run's
seed, and `data.skip` leaves out the rows that a rewind skips. A resumed training therefore
continues with the next row, and every optimizer step has the same number of rows.
"""

from __future__ import annotations

import hashlib

import torch
from torch import Tensor

from trainer_runtime.train.attempt.config import ConfigError, RunConfig


def training_order(
    config: RunConfig, rows: int, world_size: int, *, repeats: int = 1, block: int = 1
) -> Tensor:
    """The rows of all optimizer steps over all ranks, one after another, as int64.

    `repeats`: how many sequences a step makes of one row. `block`: where more than one, so many
    neighbours belong to one batch: then the order stays as it is, in every epoch, and what is left
    over after the last whole block is never read.

    Raises:
        ConfigError: there are fewer rows than stay together.
    """
    usable = rows - rows % block
    if not usable:
        raise ConfigError(
            f"only {rows} rows fit data.seq_len {config.data.seq_len}, and a batch needs {block}: "
            "give more or shorter rows, a longer data.seq_len or a smaller batch.micro_batch"
        )
    batch = config.batch
    of_step = batch.micro_batch * batch.accumulation * world_size // repeats
    ordinals = torch.arange(config.steps * of_step)
    for skip in config.data.skip:
        skipped = -(-skip.sequences // (repeats * block)) * block
        ordinals[skip.at_step * of_step :] += skipped
    epochs, places = ordinals // usable, ordinals % usable
    if block > 1:
        return places
    shuffled = [_shuffled(usable, config.seed, epoch) for epoch in range(int(epochs[-1]) + 1)]
    return torch.stack(shuffled)[epochs, places]


def validation_rows(rows: int, at_most: int) -> list[int]:
    """Up to `at_most` rows, evenly spread: the same ones at every evaluation."""
    count = min(rows, at_most)
    return [index * rows // count for index in range(count)]


def _shuffled(count: int, seed: int, epoch: int) -> Tensor:
    digest = hashlib.sha256(f"{seed}/rows/{epoch}".encode()).digest()
    generator = torch.Generator().manual_seed(int.from_bytes(digest[:7], "little"))
    return torch.randperm(count, generator=generator)
