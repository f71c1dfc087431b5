"""A run's token sequences by number, for frameworks whose loaders ask for items.

Item i is the i-th sequence that the run draws, over all ranks: the order is `TrainingData`'s. A
loader asks in rising order; going back is possible, by drawing anew from where the attempt began.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from torch import Tensor
from torch.utils.data import Dataset

from trainer_runtime.train.config import ConfigError, RunConfig
from trainer_runtime.train.data import Corpus, Shard, ShardsError, TrainingData, validation_windows

POSITION_NAME = "data_position.json"

# Labels are shifted already: label t is the token after input t.
Item = dict[str, Tensor]


class TokenSequences(Dataset[Item]):
    """The training sequences of a run whose attempt begins after `step` optimizer steps.

    `position` is what the run had drawn of each source by then, None where no checkpoint told.
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
        self._sequences_per_step = sequences_per_step
        self._start_step = step
        self._start_position = position
        self._start_drawn = self._without_position() if position is None else sum(position)
        self._reading = self._at_start()
        self._saving = self._at_start()

    def __len__(self) -> int:
        return self._config.steps * self._sequences_per_step

    def __getitem__(self, index: int) -> Item:
        drawn = self._drawn_before(index)
        if drawn < sum(self._reading.position):
            self._reading = self._at_start()
        self._reading.skip(drawn - sum(self._reading.position))
        inputs, targets = self._reading.next_batch(1)
        return {"input_ids": inputs[0], "labels": targets[0]}

    def position(self, step: int) -> list[int]:
        """What the run has drawn of each source when `step` steps are done; steps only rise."""
        steps_done = step - self._start_step
        skipped = self._skipped_between(self._start_step, step - 1)
        drawn = self._start_drawn + steps_done * self._sequences_per_step + skipped
        self._saving.skip(drawn - sum(self._saving.position))
        return self._saving.position

    def _drawn_before(self, index: int) -> int:
        """How many sequences have been drawn, those skipped with them, when this one is."""
        since_start = index - self._start_step * self._sequences_per_step
        at_step = index // self._sequences_per_step
        return self._start_drawn + since_start + self._skipped_between(self._start_step, at_step)

    def _skipped_between(self, first: int, last: int) -> int:
        skips = self._config.data.skip
        return sum(skip.sequences for skip in skips if first <= skip.at_step <= last)

    def _without_position(self) -> int:
        step = self._start_step
        return step * self._sequences_per_step + self._skipped_between(0, step - 1)

    def _at_start(self) -> TrainingData:
        weights = [source.weight for source in self._config.data.sources]
        data = TrainingData(self._corpus, weights, self._config.seed)
        if self._start_position is None:
            data.skip(self._start_drawn)
            return data
        try:
            data.seek(self._start_position)
        except ShardsError as error:
            raise ConfigError(f"the checkpoint of step {self._start_step}: {error}") from None
        return data


class HeldOutSequences(Dataset[Item]):
    """The same held-out sequences of one source at every evaluation."""

    def __init__(self, shard: Shard, batches: int, micro_batch: int) -> None:
        self._shard = shard
        self._windows = validation_windows(shard, batches, micro_batch)

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
    position: list[int] = json.loads((folder / POSITION_NAME).read_bytes())["data_position"]
    return position
