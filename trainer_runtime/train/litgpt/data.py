"""Our data as LitGPT's data modules, to be named in `litgpt.yaml` by `class_path`.

LitGPT asks a module for two loaders. What LitGPT has no interface for is added here: continuing
from a checkpoint's position, reporting the position, and each source's fixed held-out batches.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from litgpt.data import DataModule, SFTDataset, get_sft_collate_fn
from torch import Tensor
from torch.utils.data import ConcatDataset, DataLoader, IterableDataset

from trainer_runtime.core.config.curriculum import Curriculum, Shape
from trainer_runtime.train.attempt.config import ConfigError, RunConfig
from trainer_runtime.train.data.batches import Batch, Corpus, TrainingData, validation_batches
from trainer_runtime.train.data.row_order import rows_of_phase, training_order, validation_rows
from trainer_runtime.train.data.rows import load_rows, rows_by_source
from trainer_runtime.train.litgpt.examples import as_example, prompt_style_of


class RunData(DataModule):  # type: ignore[misc]  # LitGPT has no types
    """What a run asks of its data, beyond what LitGPT does."""

    def follow(self, config: RunConfig, rank: int, world_size: int) -> None:
        """Takes the run's configuration, and this rank's place; before LitGPT connects it."""
        self.config, self.rank, self.world_size = config, rank, world_size

    def fit_vocabulary(self, size: int) -> None:
        """Raises: ConfigError: the data has tokens that a model of this vocabulary has not."""

    def seek(self, step: int, position: Any) -> None:
        """Goes to where a checkpoint stood after `step`; before LitGPT sets it up."""
        raise NotImplementedError

    @property
    def position(self) -> Any:
        """How far the training has read, as JSON."""
        raise NotImplementedError

    def of_ended_phase(self, step: int) -> Sequence[int]:
        """How many sequences of each source it has drawn; before the next one's step begins."""
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
        self._mix: Mapping[str, Any] | None = None
        self._shape: Shape

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
            self._data.seek(self._start, self._mix)

    def fit_vocabulary(self, size: int) -> None:
        if self.corpus.vocab_size > size:
            raise ConfigError(
                f"the model has {size} tokens, the tokenizer {self.corpus.vocab_size}"
            )

    def seek(self, step: int, position: Any) -> None:
        if isinstance(position, Mapping):
            position, self._mix = position["of_sources"], position["mix"]
        self._start = position

    @property
    def position(self) -> dict[str, Any]:
        return {"of_sources": self._data.position, "mix": self._data.mix}

    def of_ended_phase(self, step: int) -> Sequence[int]:
        of_mix: list[int] = self._data.mix["of_mix"]
        return of_mix

    def step_begins(self, steps_done: int) -> None:
        curriculum = Curriculum.of(self.config)
        self._shape = curriculum.shape(steps_done + 1)
        self._data.take(curriculum.weights(steps_done + 1), self._shape.seq_len)
        for skip in self.config.data.skip:
            if skip.at_step == steps_done:
                self._data.skip(skip.sequences)

    def train_dataloader(self) -> DataLoader[Tensor]:
        # In this process and in no other, so that the position is that of the batch in hand.
        read = _Endless(lambda: self._data.next_batch(self._shape.micro_batch))
        return _loader(read, batch_size=None)

    def val_dataloader(self) -> DataLoader[Tensor]:
        """All held-out windows in turn; a run evaluates on `validation_sets` instead."""
        return _loader(_HeldOut(self.corpus, self.batch_size), batch_size=None)

    def validation_sets(self) -> Iterator[tuple[str, Iterator[Batch]]]:
        chosen = self.config.evaluation
        corpus = self.corpus
        for name, shard in zip(corpus.validation_names, corpus.validation, strict=True):
            batches = validation_batches(
                shard, chosen.batches, chosen.batch_size, at_most=self.batch_size
            )
            yield name, batches


class InstructionRows(RunData):
    """Rows of questions and answers, each source split and all mixed as in every run on rows.

    Arguments:
        prompt_style: How a question is put, by a name of `litgpt.prompts`; auto goes by the rows.
        mask_prompt: Whether only the answer is learnt.
    """

    def __init__(self, prompt_style: str = "auto", mask_prompt: bool = True) -> None:
        super().__init__()
        self.style_name, self.mask_prompt = prompt_style, mask_prompt
        self._start_step = 0

    def connect(
        self, tokenizer: Any = None, batch_size: int = 1, max_seq_length: int | None = None
    ) -> None:
        self.tokenizer, self.batch_size = tokenizer, batch_size
        self.max_seq_length = max_seq_length or -1
        self._collate = get_sft_collate_fn(self.max_seq_length)

    def prepare_data(self) -> None:
        """On one rank before the others: `datasets` caches what it reads."""
        load_rows(self.config)

    def setup(self, stage: str = "") -> None:
        """Raises: ConfigError: the rows can't be read, or are not questions and answers."""
        training, held_out = load_rows(self.config)
        self.prompt_style = prompt_style_of(self.style_name, training, self.config)
        self._of_sources = rows_by_source(self.config) if self.config.phases else []
        self._training = self._learnable(training, "training data")
        if sum(self._of_sources) != len(self._training) and self.config.phases:
            raise ConfigError(
                "phases mix the rows of their sources, but some rows have prompts that fill "
                f"data.seq_len {self.max_seq_length}: remove them, or give a greater one"
            )
        self._held_out = {name: self._learnable(rows, name) for name, rows in held_out.items()}

    def seek(self, step: int, position: Any) -> None:
        self._start_step = step

    @property
    def position(self) -> None:
        """The order is fixed before the start, so the step determines it."""
        return None

    def of_ended_phase(self, step: int) -> Sequence[int]:
        curriculum = Curriculum.of(self.config)
        return rows_of_phase(curriculum, self._order, self._of_sources, step)

    def train_dataloader(self) -> DataLoader[Any]:
        rows = len(self._training)
        self._order = training_order(self.config, rows, of_sources=self._of_sources)
        batches = self._order.view(-1, self.world_size, self.batch_size)[:, self.rank].tolist()
        done = self._start_step * self.config.batch.accumulation
        return _loader(self._training, batch_sampler=batches[done:], collate_fn=self._collate)

    def val_dataloader(self) -> DataLoader[Any]:
        """All held-out rows; a run evaluates on `validation_sets` instead."""
        rows: ConcatDataset[Any] = ConcatDataset(list(self._held_out.values()))
        return _loader(rows, batch_size=self.batch_size, collate_fn=self._collate)

    def validation_sets(self) -> Iterator[tuple[str, Iterator[Batch]]]:
        for name, rows in self._held_out.items():
            yield name, self._batches(rows)

    def _batches(self, rows: Any) -> Iterator[Batch]:
        size = self.batch_size
        chosen = validation_rows(len(rows), self.config.evaluation.sequences)
        for start in range(0, len(chosen), size):
            batch = self._collate([rows[index] for index in chosen[start : start + size]])
            yield batch["input_ids"][:, :-1], batch["labels"][:, 1:]

    def _learnable(self, rows: Any, name: str) -> Any:
        """The rows of which anything is learnt: a long prompt leaves no room for its answer."""
        dataset = self._dataset(rows)
        fitting = [i for i in range(len(rows)) if (dataset[i]["labels"] >= 0).any()]
        if len(fitting) == len(rows):
            return dataset
        if not fitting:
            raise ConfigError(
                f"{name}: every prompt fills data.seq_len {self.max_seq_length}, so that no answer "
                "could be learnt; give it a greater one"
            )
        if self.rank == 0:
            cut = len(rows) - len(fitting)
            print(f"{name}: {cut} rows left out, whose prompts fill data.seq_len", flush=True)
        return self._dataset(rows.select(fitting))

    def _dataset(self, rows: Any) -> Any:
        return SFTDataset(
            data=rows,
            tokenizer=self.tokenizer,
            prompt_style=self.prompt_style,
            max_seq_length=self.max_seq_length,
            mask_prompt=self.mask_prompt,
            transform=as_example,
        )


class _Endless(IterableDataset[Tensor]):
    def __init__(self, next_batch: Callable[[], Batch]) -> None:
        self._next_batch = next_batch

    def __iter__(self) -> Iterator[Tensor]:
        while True:
            yield _windows(self._next_batch())


class _HeldOut(IterableDataset[Tensor]):
    def __init__(self, corpus: Corpus, batch_size: int) -> None:
        self._corpus, self._batch_size = corpus, batch_size

    def __iter__(self) -> Iterator[Tensor]:
        for shard in self._corpus.validation:
            every = -(-len(shard) // self._batch_size)
            for batch in validation_batches(shard, every, self._batch_size):
                yield _windows(batch)


def _loader(dataset: Any, **options: Any) -> DataLoader[Any]:
    # Without a generator a loader draws from the training's random numbers when it is started.
    return DataLoader(dataset, generator=torch.Generator(), **options)


def _windows(batch: Batch) -> Tensor:
    """Inputs and targets as LitGPT's `pretrain` cuts them itself: (B, seq_len + 1)."""
    inputs, targets = batch
    return torch.cat((inputs, targets[:, -1:]), dim=1)
