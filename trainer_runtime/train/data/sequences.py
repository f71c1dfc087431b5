"""A run's token sequences by number, for frameworks whose loaders ask for items.

Item i is the i-th sequence that the run draws over all ranks, in the order of `TrainingData`. A
loader reads in rising order; going back restarts the drawing at the attempt's start.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from itertools import repeat
from pathlib import Path
from typing import Protocol

from torch import Tensor
from torch.utils.data import Dataset, IterableDataset

from trainer_runtime.core.decoding import decode_fields
from trainer_runtime.train.attempt.config import ConfigError, RunConfig
from trainer_runtime.train.attempt.exit_codes import ShardsError
from trainer_runtime.train.data.batches import Corpus, Shard, TrainingData, validation_windows
from trainer_runtime.train.data.stream import TRAIN, stream_dataset

POSITION_NAME = "data_position.json"

# Labels are shifted already: label t is the token after input t.
Item = dict[str, Tensor]


class Drawn(Protocol):
    """Reports how far a run has come in its data."""

    def position(self, step: int) -> list[int]:
        """What has been drawn when `step` steps are done: in all, or of each source."""


class Numbering:
    """Which drawn sequence is the i-th item of a run whose attempt begins after `step` steps.

    `drawn` is how many the run has drawn by then, those skipped with them; None where no checkpoint
    recorded it. A step takes as many as the present configuration says.
    """

    def __init__(
        self, config: RunConfig, sequences_per_step: int, step: int, drawn: int | None
    ) -> None:
        self.per_step = sequences_per_step
        self.start_step = step
        self._skips = config.data.skip
        if drawn is None:
            drawn = step * sequences_per_step + self._skipped_between(0, step - 1)
        self.start_drawn = drawn

    def before_item(self, index: int) -> int:
        """How many have been drawn when this item is."""
        since_start = index - self.start_step * self.per_step
        at_step = index // self.per_step
        return self.start_drawn + since_start + self._skipped_between(self.start_step, at_step)

    def after_step(self, step: int) -> int:
        """How many have been drawn when `step` steps are done."""
        since_start = (step - self.start_step) * self.per_step
        return self.start_drawn + since_start + self._skipped_between(self.start_step, step - 1)

    def _skipped_between(self, first: int, last: int) -> int:
        return sum(skip.sequences for skip in self._skips if first <= skip.at_step <= last)


class TokenSequences(Dataset[Item]):
    """The training sequences of a run whose attempt begins after `step` optimizer steps.

    `position` is what the run had drawn of each source by then, None where no checkpoint recorded
    it.
    """

    def __init__(
        self,
        corpus: Corpus,
        config: RunConfig,
        sequences_per_step: int,
        step: int = 0,
        position: Sequence[int] | None = None,
    ) -> None:
        """Raises: ConfigError: the position is of another number of sources."""
        self._corpus = corpus
        self._config = config
        self._start_position = position
        drawn = None if position is None else sum(position)
        self._numbering = Numbering(config, sequences_per_step, step, drawn)
        self._reading = self._at_start()
        self._saving = self._at_start()

    def __len__(self) -> int:
        return self._config.steps * self._numbering.per_step

    def __getitem__(self, index: int) -> Item:
        drawn = self._numbering.before_item(index)
        if drawn < sum(self._reading.position):
            self._reading = self._at_start()
        self._reading.skip(drawn - sum(self._reading.position))
        inputs, targets = self._reading.next_batch(1)
        return {"input_ids": inputs[0], "labels": targets[0]}

    def position(self, step: int) -> list[int]:
        """What the run has drawn of each source when `step` steps are done; steps only rise."""
        self._saving.skip(self._numbering.after_step(step) - sum(self._saving.position))
        return self._saving.position

    def _at_start(self) -> TrainingData:
        weights = [source.weight for source in self._config.data.sources]
        data = TrainingData(self._corpus, weights, self._config.seed)
        if self._start_position is None:
            data.skip(self._numbering.start_drawn)
            return data
        try:
            data.seek(self._start_position)
        except ShardsError as error:
            step = self._numbering.start_step
            raise ConfigError(f"the checkpoint of step {step}: {error}") from None
        return data


class StreamedItems(IterableDataset[Item]):
    """The same of sequences that are cut while they stream in; `drawn` as in `Numbering`.

    A loader that passes over what earlier attempts trained on is given one item again and again in
    its place: the stream itself is read once, from its beginning to where the run stood.
    """

    def __init__(
        self, config: RunConfig, sequences_per_step: int, step: int = 0, drawn: int | None = None
    ) -> None:
        self._config = config
        self._numbering = Numbering(config, sequences_per_step, step, drawn)

    def __iter__(self) -> Iterator[Item]:
        """Raises: ConfigError: a source can't be read, or holds too little."""
        numbering = self._numbering
        drawn = numbering.start_drawn
        stream = iter(stream_dataset(self._config, TRAIN, start=drawn))
        item = next(stream)
        passed_over = numbering.start_step * numbering.per_step
        yield from repeat(item, passed_over)
        for index in range(passed_over, self._config.steps * numbering.per_step):
            while drawn < numbering.before_item(index):
                item, drawn = next(stream), drawn + 1
            yield item

    def position(self, step: int) -> list[int]:
        """How many sequences the run has drawn when `step` steps are done."""
        return [self._numbering.after_step(step)]


class HeldOutSequences(Dataset[Item]):
    """The same held-out sequences of one source at every evaluation."""

    def __init__(self, shard: Shard, batches: int, batch_size: int) -> None:
        self._shard = shard
        self._windows = validation_windows(shard, batches, batch_size)

    def __len__(self) -> int:
        return len(self._windows)

    def __getitem__(self, index: int) -> Item:
        tokens = self._shard.read([self._windows[index]])[0]
        return {"input_ids": tokens[:-1], "labels": tokens[1:]}


def write_position(folder: Path, position: Sequence[int]) -> None:
    """Puts the position into the folder of a checkpoint that is being written."""
    (folder / POSITION_NAME).write_text(json.dumps({"data_position": list(position)}) + "\n")


def read_position(folder: Path | None) -> list[int] | None:
    """The position that a verified checkpoint keeps; None without a checkpoint."""
    if folder is None or not (folder / POSITION_NAME).exists():
        return None
    written = decode_fields((folder / POSITION_NAME).read_bytes(), POSITION_NAME)
    return list(written.integers("data_position"))
