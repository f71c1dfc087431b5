"""Batches from token shards, in an order that is a pure function of the position.

The position is the number of sequences drawn from each source, over all ranks, with those of the
present mix: it is all that a checkpoint has to keep. Sources are mixed by weight, the one furthest
behind its share first; within a source and epoch the windows come in a permutation seeded by (seed,
source, epoch). Shorter sequences are pieces of these windows, so that no length repeats what
another one has read.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from trainer_runtime.core.decoding import Fields, decode_fields
from trainer_runtime.train.attempt.exit_codes import ShardsError

META_NAME = "meta.json"
META_VERSION = 1
# torch reads the bytes as signed, few of its operations know the others; the mask undoes the sign.
_DTYPES = {"uint16": (torch.int16, 0xFFFF), "uint32": (torch.int32, 0xFFFFFFFF)}
_DEFAULT_DTYPE = "uint16"

# So many windows at a time are read piece by piece: neighbours are never in one batch.
_WINDOWS_TOGETHER = 64

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
    seq_len: int = 1

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
            return cls(tuple(names), training, validation, vocab_size, tuple(held_out), seq_len)
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
        self._corpus = corpus
        self._weigh(weights)
        self._seed = seed
        self._rank = rank
        self._world_size = world_size
        self._pieces = 1
        self._position = [0] * len(self._weights)
        self._of_mix = [0] * len(self._weights)
        self._permutations: dict[int, tuple[int, Tensor]] = {}
        self.drawn = 0

    @property
    def position(self) -> list[int]:
        """How far each source is read, over all ranks, in sequences of the present length."""
        return list(self._position)

    @property
    def mix(self) -> dict[str, Any]:
        """What of the position only a change of the mix or of the length has to know."""
        return {
            "weights": list(self._weights),
            "of_mix": list(self._of_mix),
            "pieces": self._pieces,
            "drawn": self.drawn,
        }

    def seek(self, position: Sequence[int], mix: Mapping[str, Any] | None = None) -> None:
        """Seeks to a position that an earlier run recorded; `mix` None: all in the present mix.

        Raises:
            ShardsError: it is of another number of sources.
        """
        if len(position) != len(self._position):
            raise ShardsError(f"the position counts {len(position)} sources, the data has others")
        self._position = list(position)
        self._of_mix, self.drawn = list(position), sum(position)
        if mix is not None:
            self._weigh(mix["weights"])
            self._of_mix = list(mix["of_mix"])
            self._pieces, self.drawn = mix["pieces"], mix["drawn"]

    def take(self, weights: Sequence[float], seq_len: int) -> None:
        """Draws by these weights and in this length from now on; nothing where both are as before.

        A new mix begins at the present position: its shares hold from there on.
        """
        pieces = self._corpus.seq_len // seq_len
        if pieces != self._pieces:
            self._position = [
                self._after_whole_windows(source, ordinal) * pieces
                for source, ordinal in enumerate(self._position)
            ]
            self._pieces = pieces
        if list(weights) != self._weights:
            self._weigh(weights)
            self._of_mix = [0] * len(self._weights)

    def skip(self, sequences: int) -> None:
        """Draws so many sequences without reading them."""
        for _ in range(sequences):
            self._draw()

    def next_batch(self, sequences_per_rank: int) -> Batch:
        """The next inputs and targets of this rank, each (sequences_per_rank, length) int64."""
        drawn = [self._draw() for _ in range(sequences_per_rank * self._world_size)]
        first = self._rank * sequences_per_rank
        mine = drawn[first : first + sequences_per_rank]
        if len(self._position) == 1 and self._pieces == 1:
            windows = [self._window(0, at)[0] for _, at in mine]
            tokens = self._corpus.training[0].read(windows)
        else:
            tokens = torch.cat([self._sequence(source, at) for source, at in mine])
        return tokens[:, :-1], tokens[:, 1:]

    def _weigh(self, weights: Sequence[float]) -> None:
        total = sum(weights)
        self._weights = list(weights)
        self._shares = [weight / total for weight in weights]

    def _draw(self) -> tuple[int, int]:
        """The source of the next sequence, and which of that source's sequences it is."""
        source = furthest_behind(self._of_mix, self._shares)
        self._of_mix[source] += 1
        self._position[source] += 1
        self.drawn += 1
        return source, self._position[source] - 1

    def _sequence(self, source: int, ordinal: int) -> Tensor:
        window, piece = self._window(source, ordinal)
        length = self._corpus.seq_len // self._pieces
        tokens = self._corpus.training[source].read([window])
        return tokens[:, piece * length : (piece + 1) * length + 1]

    def _window(self, source: int, ordinal: int) -> tuple[int, int]:
        """The window of a sequence, and which of its pieces it is."""
        windows = len(self._corpus.training[source])
        epoch, within = divmod(ordinal, windows * self._pieces)
        group, inside = divmod(within, _WINDOWS_TOGETHER * self._pieces)
        first = group * _WINDOWS_TOGETHER
        piece, place = divmod(inside, min(_WINDOWS_TOGETHER, windows - first))
        permutation = self._permutations.get(source)
        if permutation is None or permutation[0] != epoch:
            permutation = epoch, self._permutation(source, epoch)
            self._permutations[source] = permutation
        return int(permutation[1][first + place]), piece

    def _after_whole_windows(self, source: int, ordinal: int) -> int:
        """Of how many windows something was read: in shorter pieces always of a whole group."""
        windows = len(self._corpus.training[source])
        epoch, within = divmod(ordinal, windows * self._pieces)
        together = 1 if self._pieces == 1 else _WINDOWS_TOGETHER
        groups = -(-within // (together * self._pieces))
        return epoch * windows + min(windows, groups * together)

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
