"""Batches from token shards, in an order that is a pure function of the position.

The position is the number of sequences drawn from each source, over all ranks: it is all that a
checkpoint has to keep. Sources are mixed by weight, the one furthest behind its share first; within
a source and epoch the windows come in a permutation seeded by (seed, source, epoch).
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from trainer_runtime.core.decoding import Fields, decode_fields
from trainer_runtime.train.attempt.exit_codes import ShardsError

META_NAME = "meta.json"
META_VERSION = 1
# torch reads the bytes as signed, few of its operations know the others; the mask undoes the sign.
_DTYPES = {"uint16": (torch.int16, 0xFFFF), "uint32": (torch.int32, 0xFFFFFFFF)}
_DEFAULT_DTYPE = "uint16"

Batch = tuple[Tensor, Tensor]


@dataclass(frozen=True, slots=True)
class Shard:
    """The tokens of one source and split, mapped from the file: pages are read when touched.

    Window i is the `seq_len` + 1 tokens from i * seq_len on: inputs and, shifted by one, targets.
    """

    windows: Tensor
    mask: int

    @classmethod
    def open(cls, path: Path, tokens: int, seq_len: int, dtype_name: str = _DEFAULT_DTYPE) -> Shard:
        """Raises: ShardsError: the file is missing, of another size, or under one window."""
        dtype, mask = _DTYPES[dtype_name]
        try:
            size_bytes = path.stat().st_size
        except OSError as error:
            raise ShardsError(f"{path}: {error.strerror}") from None
        if size_bytes != tokens * dtype.itemsize or tokens < seq_len + 1:
            raise ShardsError(f"{path}: {size_bytes} bytes do not hold {tokens} tokens")
        mapped = torch.from_file(str(path), shared=False, size=tokens, dtype=dtype)
        return cls(mapped.as_strided(((tokens - 1) // seq_len, seq_len + 1), (seq_len, 1)), mask)

    def __len__(self) -> int:
        return self.windows.shape[0]

    def read(self, indices: Sequence[int] | Tensor) -> Tensor:
        """(len(indices), seq_len + 1) token numbers as int64."""
        rows = self.windows.index_select(0, torch.as_tensor(indices, dtype=torch.int64))
        return rows.to(torch.int64).bitwise_and_(self.mask)


@dataclass(frozen=True, slots=True)
class Corpus:
    """The opened shards of every source, in the config's order; `validation_names`: whose the
    held-out ones are, the same sources or files of their own."""

    names: tuple[str, ...]
    training: tuple[Shard, ...]
    validation: tuple[Shard, ...]
    vocab_size: int
    validation_names: tuple[str, ...] = ()

    @classmethod
    def open(cls, folder: Path, names: Sequence[str], seq_len: int) -> Corpus:
        """Opens a cache entry.

        Raises:
            ShardsError: it is missing or damaged, or was made for another config.
        """
        try:
            meta = decode_fields((folder / META_NAME).read_bytes(), META_NAME)
            if meta.integer("v") != META_VERSION or meta.integer("seq_len") != seq_len:
                raise ShardsError(f"{folder} was prepared for another format or data.seq_len")
            described = {source.text("name"): source for source in meta.sections("sources")}
            dtype = meta.text("dtype", _DEFAULT_DTYPE)
            held_out = [name for name, one in described.items() if "val" in one.values]
            training, validation = (
                tuple(_shard(folder, described[name].section(split), seq_len, dtype) for name in of)
                for split, of in (("train", names), ("val", held_out))
            )
            vocab_size = meta.integer("vocab_size")
            return cls(tuple(names), training, validation, vocab_size, tuple(held_out))
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise ShardsError(
                f"the data in {folder} is not prepared ({error!r}); "
                "run python -m trainer_runtime prepare with this config"
            ) from None


def _shard(folder: Path, part: Fields, seq_len: int, dtype: str) -> Shard:
    return Shard.open(folder / part.text("file"), part.integer("tokens"), seq_len, dtype)


def furthest_behind(drawn: Sequence[int], shares: Sequence[float]) -> int:
    """Of which source the next sequence is, after so many of each; `shares` sum to 1."""
    total = sum(drawn) + 1
    deficits = [share * total - count for share, count in zip(shares, drawn, strict=True)]
    return max(range(len(deficits)), key=deficits.__getitem__)


class TrainingData:
    """Draws training batches. Every rank makes the same draws and reads only its own slice."""

    def __init__(
        self,
        corpus: Corpus,
        weights: Sequence[float],
        seed: int,
        rank: int = 0,
        world_size: int = 1,
    ) -> None:
        total = sum(weights)
        self._corpus = corpus
        self._shares = [weight / total for weight in weights]
        self._seed = seed
        self._rank = rank
        self._world_size = world_size
        self._drawn = [0] * len(self._shares)
        self._permutations: dict[int, tuple[int, Tensor]] = {}

    @property
    def position(self) -> list[int]:
        """How many sequences were drawn of each source, over all ranks."""
        return list(self._drawn)

    def seek(self, position: Sequence[int]) -> None:
        """Seeks to a position that an earlier run recorded.

        Raises:
            ShardsError: it is of another number of sources.
        """
        if len(position) != len(self._drawn):
            raise ShardsError(f"the position counts {len(position)} sources, the data has others")
        self._drawn = list(position)

    def skip(self, sequences: int) -> None:
        """Draws so many sequences without reading them."""
        for _ in range(sequences):
            self._draw()

    def next_batch(self, sequences_per_rank: int) -> Batch:
        """The next inputs and targets of this rank, each (sequences_per_rank, seq_len) int64."""
        drawn = [self._draw() for _ in range(sequences_per_rank * self._world_size)]
        first = self._rank * sequences_per_rank
        mine = drawn[first : first + sequences_per_rank]
        if len(self._drawn) == 1:
            tokens = self._corpus.training[0].read([self._window(0, at) for _, at in mine])
        else:
            rows = [self._corpus.training[s].read([self._window(s, at)]) for s, at in mine]
            tokens = torch.cat(rows)
        return tokens[:, :-1], tokens[:, 1:]

    def _draw(self) -> tuple[int, int]:
        """The source of the next sequence, and which of that source's sequences it is."""
        source = furthest_behind(self._drawn, self._shares)
        self._drawn[source] += 1
        return source, self._drawn[source] - 1

    def _window(self, source: int, ordinal: int) -> int:
        epoch, within = divmod(ordinal, len(self._corpus.training[source]))
        permutation = self._permutations.get(source)
        if permutation is None or permutation[0] != epoch:
            permutation = epoch, self._permutation(source, epoch)
            self._permutations[source] = permutation
        return int(permutation[1][within])

    def _permutation(self, source: int, epoch: int) -> Tensor:
        digest = hashlib.sha256(f"{self._seed}/{source}/{epoch}".encode()).digest()
        generator = torch.Generator().manual_seed(int.from_bytes(digest[:7], "little"))
        return torch.randperm(len(self._corpus.training[source]), generator=generator)


def validation_batches(
    shard: Shard, batches: int, batch_size: int, *, at_most: int | None = None
) -> Iterator[Batch]:
    """`validation_windows` in batches of one size, so that each counts alike in a mean and a
    compiled model sees one shape; `at_most`: the sequences of a batch that fit into the memory."""
    windows = validation_windows(shard, batches, batch_size)
    size = min(len(windows), at_most or batch_size)
    while size > 1 and len(windows) % size:
        size -= 1
    for start in range(0, len(windows), max(1, size)):
        tokens = shard.read(windows[start : start + size])
        yield tokens[:, :-1], tokens[:, 1:]


def validation_windows(shard: Shard, batches: int, batch_size: int) -> list[int]:
    """The same evenly spread windows at every call: at most batches * batch_size of them, and whole
    batches unless the shard holds fewer windows than one."""
    count = min(batches * batch_size, len(shard))
    if count > batch_size:
        count -= count % batch_size
    return [index * len(shard) // count for index in range(count)]
