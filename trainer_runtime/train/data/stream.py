"""Sequences cut while training, from texts that are read as they stream: `data.prepare: stream`.

A pass over a source is a permutation of its sections (`train.data.blocks`) by (seed, source, pass).
A block's texts are packed as in shards: a text, the token that ends it, the next text; windows of
`seq_len` + 1 tokens that share one, in an order by the seed, too. The rest behind a block's last
window is dropped. Unless there are files for validation, every twentieth section is held out, of a
source with few sections every twentieth window. Nothing is kept on a disk.
"""

from __future__ import annotations

from array import array
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

import torch
from torch import Tensor
from torch.utils.data import IterableDataset, get_worker_info

from trainer_runtime.core.config import SourceConfig
from trainer_runtime.core.decoding import JsonRecord
from trainer_runtime.core.files.corpus import VALIDATION_SHARE
from trainer_runtime.train.attempt.config import ConfigError, RunConfig
from trainer_runtime.train.data.ahead import ahead
from trainer_runtime.train.data.batches import furthest_behind
from trainer_runtime.train.data.blocks import Blocks, Text
from trainer_runtime.train.data.row_order import shuffled
from trainer_runtime.train.data.tokenizers import open_tokenizer

TRAIN, VALIDATION = "train", "validation"
_HELD_OUT_EVERY = round(1 / VALIDATION_SHARE)
# With fewer, a twentieth of the sections is far from a twentieth of the text.
_FEW_SECTIONS = 2 * _HELD_OUT_EVERY
# Of a source, more than are read ahead of the step that is saved.
_MARKS_KEPT = 4096

# As `train.data.sequences` gives them: label t is the token after input t.
Item = dict[str, Tensor]


@dataclass(frozen=True, slots=True)
class Mark(JsonRecord):
    """Where a block of a source begins: in which pass, section of that pass, and block of the
    section, and how many of the source's windows were drawn `before`."""

    epoch: int = 0
    place: int = 0
    block: int = 0
    before: int = 0


class Draws:
    """How many sequences were drawn of each source; the one furthest behind its share is next."""

    def __init__(self, sources: Sequence[SourceConfig], drawn: Sequence[int] = ()) -> None:
        weights = [source.weight for source in sources]
        self._shares = [weight / sum(weights) for weight in weights]
        self.drawn = list(drawn) or [0] * len(weights)

    def next(self) -> int:
        """The source of the next sequence."""
        chosen = furthest_behind(self.drawn, self._shares)
        self.drawn[chosen] += 1
        return chosen

    def skip_to(self, total: int) -> None:
        """Draw until so many are drawn in all."""
        if len(self.drawn) == 1:
            self.drawn = [total]
        for _ in range(total - sum(self.drawn)):
            self.next()


class StreamedSequences(IterableDataset[Item]):
    """A run's sequences in their one order; endless for training.

    Of a loader's workers the first reads it and the others end at once: the order is one, and every
    worker would have to tokenize all of it.
    """

    def __init__(
        self,
        config: RunConfig,
        split: str,
        *,
        source: str | None = None,
        drawn: Sequence[int] = (),
        marks: Sequence[Mark] = (),
    ) -> None:
        """`drawn`: how many the run has drawn of each source; `marks`: for each the beginning of
        the block in which that was, without which all of them are read over.

        Raises:
            ConfigError: the tokenizer can't be used, or a source can't be read.
        """
        data = config.data
        of_split = data.sources if split == TRAIN else data.evaluated
        self._sources = [listed for listed in of_split if source in (None, listed.name)]
        self._blocks = [Blocks(listed, data.seq_len, data.bad_rows) for listed in self._sources]
        self._is_split = not data.validation
        self._seq_len, self._seed = data.seq_len, config.seed
        self._split = split
        self._most = config.evaluation.sequences
        self._drawn = list(drawn) or [0] * len(self._sources)
        self._begins = list(marks) or [Mark()] * len(self._sources)
        self._marks = [deque([mark], maxlen=_MARKS_KEPT) for mark in self._begins]
        self.tokenizer = open_tokenizer(data.tokenizer)

    def __iter__(self) -> Iterator[Item]:
        """Raises: ConfigError: a source can't be read, or holds nothing for the split."""
        worker = get_worker_info()
        if worker is not None and worker.id:
            return
        if self._split == VALIDATION:
            for source in range(len(self._sources)):
                for window in islice(self._held_out(source), self._most):
                    yield _item(window)
            return
        draws = Draws(self._sources, self._drawn)
        windows = [self._training(source) for source in range(len(self._sources))]
        while True:
            yield _item(next(windows[draws.next()]))

    def mark(self, source: int, drawn: int) -> Mark:
        """The beginning of the block that holds a source's window after so many drawn ones; an
        earlier one where that was read in another process."""
        earlier = (mark for mark in reversed(self._marks[source]) if mark.before <= drawn)
        return next(earlier, self._begins[source])

    def _training(self, source: int) -> Iterator[Tensor]:
        """A source's windows, pass after pass."""
        mark, drawn = self._begins[source], self._drawn[source]
        before = of_pass = mark.before
        epoch, is_whole = mark.epoch, mark.place == mark.block == 0
        for at, section, tokens in ahead(self._passes(source, mark)):
            if at.epoch > epoch:
                if is_whole and before == of_pass:
                    raise self._nothing(source)
                epoch, of_pass, is_whole = at.epoch, before, True
            self._marks[source].append(Mark(at.epoch, at.place, at.block, before))
            numbers = [
                number
                for number in range((len(tokens) - 1) // self._seq_len)
                if not self._is_held_out(source, section, at.block, number)
            ]
            seeded_by = f"{self._seed}/stream/{source}/{at.epoch}/{section}/{at.block}"
            order = shuffled(len(numbers), seeded_by).tolist()
            for chosen in order[max(0, drawn - before) :]:
                yield self._window(tokens, numbers[chosen])
            before += len(numbers)

    def _passes(self, source: int, mark: Mark) -> Iterator[tuple[Mark, int, Tensor]]:
        """The blocks to train on from a mark on, each with its section and its tokens."""
        epoch, place, block = mark.epoch, mark.place, mark.block
        sections, blocks = self._sections(source, held_out=False), self._blocks[source]
        while True:
            is_empty = place == block == 0
            order = shuffled(len(sections), f"{self._seed}/stream/{source}/{epoch}").tolist()
            for at in range(place, len(order)):
                section = sections[order[at]]
                for number, texts in enumerate(blocks.read(section, block), block):
                    is_empty = False
                    yield Mark(epoch, at, number), section, self._tokens(texts)
                block = 0
            if is_empty:
                raise self._nothing(source)
            epoch, place = epoch + 1, 0

    def _held_out(self, source: int) -> Iterator[Tensor]:
        """A source's windows for evaluation, by an order that all runs share."""
        sections = self._sections(source, held_out=True)
        for at in shuffled(len(sections), "held out").tolist():
            for block, texts in enumerate(self._blocks[source].read(sections[at])):
                tokens = self._tokens(texts)
                for number in range((len(tokens) - 1) // self._seq_len):
                    if not self._is_split or self._is_held_out(source, sections[at], block, number):
                        yield self._window(tokens, number)

    def _sections(self, source: int, *, held_out: bool) -> Sequence[int]:
        """Those that hold windows of a split."""
        count = len(self._blocks[source])
        if not self._is_split or count < _FEW_SECTIONS:
            return range(count)
        return [section for section in range(count) if _is_twentieth(section) == held_out]

    def _is_held_out(self, source: int, section: int, block: int, window: int) -> bool:
        if not self._is_split:
            return False
        if len(self._blocks[source]) >= _FEW_SECTIONS:
            return _is_twentieth(section)
        return _is_twentieth(section + block + window)

    def _tokens(self, texts: Sequence[Text]) -> Tensor:
        encoded = self.tokenizer.encode([text for text, _ in texts])
        tokens = array("i")
        for (_, ends), numbers in zip(texts, encoded, strict=True):
            tokens.extend(numbers)
            if ends:
                tokens.append(self.tokenizer.end_of_text)
        return torch.frombuffer(tokens, dtype=torch.int32) if tokens else torch.empty(0)

    def _window(self, tokens: Tensor, number: int) -> Tensor:
        first = number * self._seq_len
        return tokens[first : first + self._seq_len + 1].to(torch.int64)

    def _nothing(self, source: int) -> ConfigError:
        name = self._sources[source].name
        return ConfigError(f"data source {name} holds less than a sequence of data.seq_len")


def stream_dataset(
    config: RunConfig,
    split: str,
    *,
    source: str | None = None,
    drawn: Sequence[int] = (),
    marks: Sequence[Mark] = (),
) -> StreamedSequences:
    """The sequences of a split (train, validation) of all sources, or of one by its name; of
    training those that follow on `drawn` ones of each source.

    Validation gives the first `eval.batches` * `eval.batch_size` held-out windows of each source,
    the same ones at every call.

    Raises:
        ConfigError: the tokenizer can't be used, or a source can't be read.
    """
    return StreamedSequences(config, split, source=source, drawn=drawn, marks=marks)


def _is_twentieth(number: int) -> bool:
    return number % _HELD_OUT_EVERY == _HELD_OUT_EVERY - 1


def _item(window: Tensor) -> Item:
    return {"input_ids": window[:-1], "labels": window[1:]}
