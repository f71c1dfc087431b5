"""The order in which a training reads its rows, fixed before it starts.

A row's place depends on the configuration alone: rows are reshuffled every epoch from the run's
seed, and `data.skip` leaves out the rows that a rewind skips. A resumed training therefore
continues with the next row, and every optimizer step has the same number of rows.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from itertools import accumulate

import torch
from torch import Tensor

from trainer_runtime.core.config.curriculum import Curriculum
from trainer_runtime.train.attempt.config import ConfigError, RunConfig
from trainer_runtime.train.data.batches import furthest_behind


def training_order(
    config: RunConfig,
    rows: int,
    *,
    repeats: int = 1,
    block: int = 1,
    of_sources: Sequence[int] = (),
) -> Tensor:
    """The rows of all optimizer steps over all ranks, one after another, as int64.

    `repeats`: how many sequences a step makes of one row. `block`: where more than one, so many
    neighbours belong to one batch: then the order stays as it is, in every epoch, and what is left
    over after the last whole block is never read. `of_sources`: how many rows each source has, one
    source after another, where phases mix them.

    Raises:
        ConfigError: there are fewer rows than stay together.
    """
    usable = rows - rows % block
    if not usable:
        raise ConfigError(
            f"only {rows} rows fit data.seq_len {config.data.seq_len}, and a batch needs {block}: "
            "give more or shorter rows, a longer data.seq_len or a smaller batch.micro_batch"
        )
    curriculum = Curriculum.of(config)
    if of_sources:
        return _mixed_by_phases(curriculum, of_sources)
    ordinals = torch.arange(curriculum.sequences_before(config.steps) // repeats)
    for skip in config.data.skip:
        skipped = -(-skip.sequences // (repeats * block)) * block
        ordinals[curriculum.sequences_before(skip.at_step) // repeats :] += skipped
    epochs, places = ordinals // usable, ordinals % usable
    if block > 1:
        return places
    passes = range(int(epochs[-1]) + 1)
    orders = [shuffled(usable, f"{config.seed}/rows/{epoch}") for epoch in passes]
    return torch.stack(orders)[epochs, places]


def rows_of_phase(
    curriculum: Curriculum, order: Tensor, of_sources: Sequence[int], step: int
) -> list[int]:
    """How many of the order's rows are of each source in the phase that ends with `step`; empty
    where phases don't mix them."""
    if not of_sources:
        return []
    phase = curriculum.phase_at(step)
    first, last = (curriculum.sequences_before(steps) for steps in (phase.begins, phase.ends))
    ends = torch.tensor(list(accumulate(of_sources)))
    sources = torch.bucketize(order[first:last], ends, right=True)
    return [int(count) for count in torch.bincount(sources, minlength=len(of_sources))]


def validation_rows(rows: int, at_most: int) -> list[int]:
    """Up to `at_most` rows, evenly spread: the same ones at every evaluation."""
    count = min(rows, at_most)
    return [index * rows // count for index in range(count)]


def _mixed_by_phases(curriculum: Curriculum, of_sources: Sequence[int]) -> Tensor:
    """The rows by each phase's weights; every source in an order of its own, pass after pass."""
    seed, skips = curriculum.config.seed, curriculum.config.data.skip
    firsts = [0, *accumulate(of_sources)]
    drawn = [0] * len(of_sources)
    orders: dict[int, Iterator[int]] = {}
    order: list[int] = []

    def draw(of_phase: list[int], shares: Sequence[float]) -> int:
        source = furthest_behind(of_phase, shares)
        epoch, place = divmod(drawn[source], of_sources[source])
        if place == 0:
            order_of_pass = shuffled(of_sources[source], f"{seed}/rows/{source}/{epoch}")
            orders[source] = iter(order_of_pass.tolist())
        of_phase[source] += 1
        drawn[source] += 1
        return firsts[source] + next(orders[source])

    for phase in curriculum.phases:
        weights, of_phase = curriculum.weights(phase.ends), [0] * len(of_sources)
        shares = [weight / sum(weights) for weight in weights]
        for step in range(phase.begins, phase.ends):
            for skip in skips:
                for _ in range(skip.sequences if skip.at_step == step else 0):
                    draw(of_phase, shares)
            count = curriculum.sequences_before(step + 1) - curriculum.sequences_before(step)
            order += [draw(of_phase, shares) for _ in range(count)]
    return torch.tensor(order, dtype=torch.int64)


def shuffled(count: int, seeded_by: str) -> Tensor:
    """The numbers below `count` in an order that follows from `seeded_by` alone."""
    digest = hashlib.sha256(seeded_by.encode()).digest()
    generator = torch.Generator().manual_seed(int.from_bytes(digest[:7], "little"))
    return torch.randperm(count, generator=generator)
