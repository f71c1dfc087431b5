"""Sequences cut while training, from texts that are read as they stream: `data.prepare: stream`.

Sources are read by `datasets` in its streaming mode, tokenised and packed as shards are: a text,
the token that ends it, the next text; windows of `seq_len` + 1 tokens that share one. Texts come in
the order of the files, pass after pass; every twentieth window is held out, unless there are files
for validation. Nothing is kept on a disk.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from itertools import islice

import torch
from torch import Tensor
from torch.utils.data import IterableDataset

from trainer_runtime.core.files.corpus import VALIDATION_SHARE
from trainer_runtime.core.inputs.bad_rows import BadRows
from trainer_runtime.train.attempt.config import ConfigError, RunConfig, SourceConfig
from trainer_runtime.train.data.batches import furthest_behind
from trainer_runtime.train.data.documents import COLUMN, Piece, cut, pieces
from trainer_runtime.train.data.rows import files_of, stream_rows
from trainer_runtime.train.data.tokenizers import Tokenizer, open_tokenizer

TRAIN, VALIDATION = "train", "validation"
_HELD_OUT_EVERY = round(1 / VALIDATION_SHARE)

# As `train.data.sequences` gives them: label t is the token after input t.
Item = dict[str, Tensor]


class StreamedSequences(IterableDataset[Item]):
    """A run's sequences in their one order; endless for training. To be read without workers.

    `start`: how many of them the run has drawn before; they are read over, which takes about as
    long as tokenising them.
    """

    def __init__(
        self, config: RunConfig, split: str, *, source: str | None = None, start: int = 0
    ) -> None:
        """Raises: ConfigError: the tokenizer can't be used."""
        data = config.data
        of_split = data.sources if split == TRAIN else data.evaluated
        self._sources = [listed for listed in of_split if source in (None, listed.name)]
        self._bad_rows = data.bad_rows
        self._is_split = not data.validation
        self._seq_len = data.seq_len
        self._split = split
        self._start = start
        self._most = config.evaluation.sequences
        self.tokenizer = open_tokenizer(data.tokenizer)

    def __iter__(self) -> Iterator[Item]:
        """Raises: ConfigError: a source can't be read, or holds nothing for the split."""
        if self._split == VALIDATION:
            for source in self._sources:
                for window in islice(self.windows_of(source), self._most):
                    yield _item(window)
            return
        passes = [_Passes(self, source) for source in self._sources]
        weights = [source.weight for source in self._sources]
        shares = [weight / sum(weights) for weight in weights]
        drawn = [0] * len(passes)
        while True:
            chosen = furthest_behind(drawn, shares)
            window = passes[chosen].next()
            if sum(drawn) >= self._start:
                yield _item(window)
            drawn[chosen] += 1

    def windows_of(self, source: SourceConfig) -> Iterator[array[int]]:
        """One pass over a source: the split's windows."""
        held_out = self._split == VALIDATION
        number, held = 0, array("I")
        for tokens in _tokens(source, self.tokenizer, self._bad_rows):
            held.extend(tokens)
            at = 0
            while at + self._seq_len + 1 <= len(held):
                of_the_held_out = number % _HELD_OUT_EVERY == _HELD_OUT_EVERY - 1
                if not self._is_split or of_the_held_out == held_out:
                    yield held[at : at + self._seq_len + 1]
                number, at = number + 1, at + self._seq_len
            held = held[at:]


class _Passes:
    """A source's windows, pass after pass."""

    def __init__(self, sequences: StreamedSequences, source: SourceConfig) -> None:
        self._sequences = sequences
        self._source = source
        self._reading = sequences.windows_of(source)

    def next(self) -> array[int]:
        window = next(self._reading, None)
        if window is None:
            self._reading = self._sequences.windows_of(self._source)
            window = next(self._reading, None)
        if window is None:
            raise ConfigError(
                f"data source {self._source.name} holds less than a sequence of data.seq_len"
            )
        return window


def stream_dataset(
    config: RunConfig, split: str, *, source: str | None = None, start: int = 0
) -> StreamedSequences:
    """The sequences of a split (train, validation) of all sources, or of one by its name.

    Validation gives the first `eval.batches` * `eval.batch_size` held-out windows of each source,
    the same ones at every call.

    Raises:
        ConfigError: the tokenizer can't be used.
    """
    return StreamedSequences(config, split, source=source, start=start)


def _tokens(source: SourceConfig, tokenizer: Tokenizer, bad_rows: float) -> Iterator[list[int]]:
    counted = BadRows(bad_rows)
    for text, ends, _ in _texts(source, counted):
        tokens = list(tokenizer.encode([text])[0])
        yield [*tokens, tokenizer.end_of_text] if ends else tokens
    if counted.bad:
        print(f"{source.name}: {counted.report()}", flush=True)


def _texts(source: SourceConfig, counted: BadRows) -> Iterator[Piece]:
    """Files of text in pieces: `datasets` would hold each one whole, and stop at a line that is not
    JSON."""
    if source.format in ("text", "jsonl"):
        yield from pieces(source, files_of(source), counted)
        return
    for number, row in enumerate(stream_rows(source), 1):
        text = row.get(COLUMN)
        if COLUMN not in row:
            has = ", ".join(f"`{name}`" for name in row)
            raise ConfigError(f"data source {source.name} has no text under `{COLUMN}`, but {has}")
        if isinstance(text, str):
            counted.add(None)
            yield from cut(text, True, 0.0)
        else:
            counted.add(f"{source.path}, row {number} has no text under `{COLUMN}`")
    if (refusal := counted.refusal()) is not None:
        raise ConfigError(f"data source {source.name}: {refusal}")


def _item(window: array[int]) -> Item:
    tokens = torch.tensor(window.tolist(), dtype=torch.int64)
    return {"input_ids": tokens[:-1], "labels": tokens[1:]}
