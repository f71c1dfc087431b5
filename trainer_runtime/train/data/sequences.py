"""A run's token sequences by number, for frameworks whose loaders ask for items.

Item i is the i-th sequence that the run draws over all ranks, in the order of `TrainingData`. A
loader reads in rising order; going back restarts the drawing at the attempt's start.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from torch import Tensor
from torch.utils.data import Dataset, IterableDataset

from trainer_runtime.core.config.curriculum import Curriculum
from trainer_runtime.core.decoding import decode_fields
from trainer_runtime.train.attempt.config import ConfigError, RunConfig
from trainer_runtime.train.attempt.exit_codes import ShardsError
from trainer_runtime.train.data.batches import Corpus, Shard, TrainingData, validation_windows
from trainer_runtime.train.data.stream import TRAIN, Draws, Mark, stream_dataset

POSITION_NAME = "data_position.json"

# Labels are shifted already: label t is the token after input t.
Item = dict[str, Tensor]


@dataclass(frozen=True, slots=True)
class Position:
    """How far a run has come in its data: of each source, and in which mix. `marks`: of a stream,
    where in each source that is."""

    of_sources: list[int]
    mix: Mapping[str, Any] | None = None
    marks: tuple[Mark, ...] = ()

    @property
    def drawn(self) -> int:
        """How many sequences have been drawn."""
        return sum(self.of_sources) if self.mix is None else int(self.mix["drawn"])


class Drawn(Protocol):
    """Reports how far a run has come in its data."""

    def position(self, step: int) -> Position:
        """Where the data stands when `step` steps are done."""

    def of_ended_phase(self, step: int) -> list[int]:
        """How many sequences of each source the mix of the phase has drawn that ends with this
        step; empty where that is not known."""


class Numbering:
    """Which drawn sequence is the i-th item of a run whose attempt begins after `step` steps.

    `drawn` is how many the run has drawn by then, those skipped with them; None where no checkpoint
    recorded it. A step takes as many as the present configuration says.
    """

    def __init__(self, config: RunConfig, step: int, drawn: int | None) -> None:
        self.curriculum = Curriculum.of(config)
        self.start_step = step
        self._skips = config.data.skip
        self._start_item = self.curriculum.sequences_before(step)
        if drawn is None:
            drawn = self._start_item + self._skipped_between(0, step - 1)
        self.start_drawn = drawn

    def before_item(self, index: int) -> int:
        """How many have been drawn when this item is."""
        at_step = self.curriculum.steps_before(index)
        skipped = self._skipped_between(self.start_step, at_step)
        return self.start_drawn + index - self._start_item + skipped

    def after_step(self, step: int) -> int:
        """How many have been drawn when `step` steps are done."""
        since_start = self.curriculum.sequences_before(step) - self._start_item
        return self.start_drawn + since_start + self._skipped_between(self.start_step, step - 1)

    def _skipped_between(self, first: int, last: int) -> int:
        return sum(skip.sequences for skip in self._skips if first <= skip.at_step <= last)


class _Reading:
    """A place in the data, which moves on through the phases."""

    def __init__(self, data: TrainingData, numbering: Numbering) -> None:
        self.data = data
        self.of_ended_phase: list[int] = []
        self._numbering = numbering
        self._phase_begins = numbering.start_step

    def go_to(self, drawn: int) -> None:
        """Draws until so many sequences of the run are drawn; the next one is of its phase."""
        curriculum = self._numbering.curriculum
        while True:
            step = self._phase_begins + 1
            self.data.take(curriculum.weights(step), curriculum.shape(step).seq_len)
            phase = curriculum.phase_at(step)
            ends = self._numbering.after_step(phase.ends)
            if drawn < ends or phase.ends >= curriculum.config.steps:
                break
            self._end_phase(ends)
            self._phase_begins = phase.ends
        if drawn == ends:
            self._end_phase(ends)
        self.data.skip(drawn - self.data.drawn)

    def _end_phase(self, ends: int) -> None:
        """Draws what is left of it, before the data takes the mix of the next one."""
        self.data.skip(ends - self.data.drawn)
        self.of_ended_phase = self.data.mix["of_mix"]


class TokenSequences(Dataset[Item]):
    """The training sequences of a run whose attempt begins after `step` optimizer steps.

    `position` is where a checkpoint's data stood by then, None where it recorded none.
    """

    def __init__(
        self,
        corpus: Corpus,
        config: RunConfig,
        step: int = 0,
        position: Position | None = None,
    ) -> None:
        """Raises: ConfigError: the position is of another number of sources."""
        self._corpus = corpus
        self._config = config
        self._start_position = position
        drawn = None if position is None else position.drawn
        self._numbering = Numbering(config, step, drawn)
        self._reading = self._at_start()
        self._saving = self._at_start()

    def __len__(self) -> int:
        return self._numbering.curriculum.sequences_before(self._config.steps)

    def __getitem__(self, index: int) -> Item:
        drawn = self._numbering.before_item(index)
        if drawn < self._reading.data.drawn:
            self._reading = self._at_start()
        self._reading.go_to(drawn)
        inputs, targets = self._reading.data.next_batch(1)
        return {"input_ids": inputs[0], "labels": targets[0]}

    def place(self, index: int) -> int:
        """How many sequences the run has drawn when it draws this one."""
        return self._numbering.before_item(index)

    def position(self, step: int) -> Position:
        """Where the data stands when `step` steps are done; steps only rise."""
        saving = self._saving
        saving.go_to(self._numbering.after_step(step))
        return Position(saving.data.position, saving.data.mix)

    def of_ended_phase(self, step: int) -> list[int]:
        """As `Drawn` says."""
        self.position(step)
        return self._saving.of_ended_phase

    def _at_start(self) -> _Reading:
        weights = [source.weight for source in self._config.data.sources]
        data = TrainingData(self._corpus, weights, self._config.seed)
        if self._start_position is None:
            reading = _Reading(data, self._numbering)
            data.skip(self._numbering.start_drawn)
            return reading
        try:
            data.seek(self._start_position.of_sources, self._start_position.mix)
        except ShardsError as error:
            step = self._numbering.start_step
            raise ConfigError(f"the checkpoint of step {step}: {error}") from None
        return _Reading(data, self._numbering)


class StreamedItems(IterableDataset[Item]):
    """The same of sequences that are cut while they stream in; `position` as in `TokenSequences`.

    It begins with the first item after `step`: a loader must not pass over earlier ones.
    """

    def __init__(self, config: RunConfig, step: int = 0, position: Position | None = None) -> None:
        """Raises: ConfigError: a source can't be read, or the tokenizer not be used."""
        self._config = config
        sources = config.data.sources
        self._numbering = Numbering(config, step, None if position is None else position.drawn)
        kept = position or Position([])
        by_source = len(kept.of_sources) == len(sources)
        self._saving = Draws(sources, kept.of_sources if by_source else ())
        self._saving.skip_to(self._numbering.start_drawn)
        marks = kept.marks if by_source else ()
        self._stream = stream_dataset(config, TRAIN, drawn=self._saving.drawn, marks=marks)

    def __iter__(self) -> Iterator[Item]:
        """Raises: ConfigError: a source can't be read, or holds too little."""
        numbering, curriculum = self._numbering, self._numbering.curriculum
        drawn = numbering.start_drawn
        begin, end = map(curriculum.sequences_before, (numbering.start_step, self._config.steps))
        if begin == end:
            return
        for item in self._stream:
            if drawn == numbering.before_item(begin):
                yield item
                begin += 1
                if begin == end:
                    return
            drawn += 1

    def position(self, step: int) -> Position:
        """How many sequences the run has drawn when `step` steps are done, and where; steps only
        rise."""
        self._saving.skip_to(self._numbering.after_step(step))
        drawn = list(self._saving.drawn)
        marks = (self._stream.mark(source, count) for source, count in enumerate(drawn))
        return Position(drawn, marks=tuple(marks))

    def of_ended_phase(self, step: int) -> list[int]:
        """Nothing: what streams in has no phases."""
        return []


class HeldOutSequences(Dataset[Item]):
    """The same held-out sequences of one source at every evaluation."""

    def __init__(self, shard: Shard, batches: int, batch_size: int) -> None:
        self._shard = shard
        self._windows = validation_windows(shard, batches, batch_size)

    def __len__(self) -> int:
        return len(self._windows)

    def place(self, index: int) -> int:
        """The window in the source."""
        return self._windows[index]

    def __getitem__(self, index: int) -> Item:
        tokens = self._shard.read([self._windows[index]])[0]
        return {"input_ids": tokens[:-1], "labels": tokens[1:]}


def write_position(folder: Path, position: Position) -> None:
    """Puts the position into the folder of a checkpoint that is being written."""
    document: dict[str, Any] = {
        "data_position": position.of_sources,
        "data_mix": position.mix,
        "data_marks": [mark.to_dict() for mark in position.marks],
    }
    (folder / POSITION_NAME).write_text(json.dumps(document) + "\n")


def read_position(folder: Path | None) -> Position | None:
    """The position that a verified checkpoint keeps; None without a checkpoint."""
    if folder is None or not (folder / POSITION_NAME).exists():
        return None
    written = decode_fields((folder / POSITION_NAME).read_bytes(), POSITION_NAME)
    mix = written.find_section("data_mix")
    return Position(
        list(written.integers("data_position")),
        None if mix is None else dict(mix.values),
        tuple(map(Mark.of, written.sections("data_marks"))),
    )
