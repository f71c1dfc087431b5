"""Reads tensors of safetensors files by pieces, and averages them over folders."""

from __future__ import annotations

import mmap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from trainer_runtime.core.files.regular import open_regular
from trainer_runtime.core.files.tensor_header import HeaderError, TensorEntry, read_header
from trainer_runtime.train.attempt.config import ConfigError
from trainer_runtime.train.checkpoints.tensors import DTYPES

# Of a tensor that is averaged, so that only its result is in memory whole.
_PIECE_ELEMENTS = 1 << 20


@dataclass(frozen=True, slots=True)
class _Mapped:
    """`start`: where the file's tensors begin."""

    file: mmap.mmap
    start: int
    entry: TensorEntry


class SavedTensors:
    """The tensors of files, which are mapped and read when they are asked for; of two with one name
    the later file's."""

    def __init__(self, name: str, files: Iterable[Path]) -> None:
        """`name`: what they are called in errors.

        Raises:
            ConfigError: a file can't be read, or is not whole safetensors.
        """
        self.name = name
        self._mapped: dict[str, _Mapped] = {}
        for path in files:
            try:
                with open_regular(path) as file:
                    start, entries = read_header(file.fileno())
                    mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
            except (OSError, ValueError) as error:
                reason = f"{path.name} {error}" if isinstance(error, HeaderError) else error
                raise ConfigError(f"{name} can't be read: {reason}") from None
            self._mapped |= {entry.name: _Mapped(mapped, start, entry) for entry in entries}

    def shapes(self) -> dict[str, tuple[str, tuple[int, ...]]]:
        """The type and the shape of each, by name."""
        return {name: (of.entry.dtype, of.entry.shape) for name, of in self._mapped.items()}

    def piece(self, name: str, first: int, count: int) -> Tensor:
        """So many elements of a tensor, from the first one on; shape (count,)."""
        mapped = self._mapped[name]
        dtype = DTYPES[mapped.entry.dtype]
        offset = mapped.start + mapped.entry.begin + first * dtype.itemsize
        return torch.frombuffer(mapped.file, dtype=dtype, count=count, offset=offset)


class AveragedTensors(Mapping[str, Tensor]):
    """The uniform mean of each tensor over several folders, made when it is asked for."""

    def __init__(
        self, sources: Sequence[SavedTensors], piece_elements: int = _PIECE_ELEMENTS
    ) -> None:
        """Raises: ConfigError: their names, types or shapes differ, or a type is not read."""
        self._sources, self._shapes = sources, sources[0].shapes()
        self._piece_elements = piece_elements
        for source in sources[1:]:
            _refuse_another(source, sources[0])
        for name, (dtype, _) in self._shapes.items():
            if dtype not in DTYPES:
                raise ConfigError(f"{sources[0].name}: {name} has the type {dtype}")

    def __getitem__(self, name: str) -> Tensor:
        result = self.empty(name)
        flat, count = result.view(-1), result.numel()
        # A number of steps, or a mask, has no mean: the newest one stays.
        sources = self._sources if result.is_floating_point() else self._sources[-1:]
        for first in range(0, count, self._piece_elements):
            size = min(self._piece_elements, count - first)
            pieces = [source.piece(name, first, size) for source in sources]
            if len(pieces) == 1:
                flat[first : first + size] = pieces[0]
                continue
            total = torch.zeros(size, dtype=torch.float64)
            for piece in pieces:
                total += piece
            flat[first : first + size] = (total / len(pieces)).to(result.dtype)
        return result

    def __iter__(self) -> Iterator[str]:
        return iter(self._shapes)

    def __len__(self) -> int:
        return len(self._shapes)

    def empty(self, name: str) -> Tensor:
        """A tensor of its type and shape, without its values."""
        dtype, shape = self._shapes[name]
        return torch.empty(shape, dtype=DTYPES[dtype])


def _refuse_another(source: SavedTensors, first: SavedTensors) -> None:
    ours, theirs = first.shapes(), source.shapes()
    if differing := sorted(ours.keys() ^ theirs.keys()):
        names = ", ".join(differing[:3])
        raise ConfigError(f"{source.name} and {first.name} are of other models: {names}")
    for name, shape in ours.items():
        if theirs[name] != shape:
            raise ConfigError(
                f"{name} is {_words(*theirs[name])} in {source.name}, and {_words(*shape)} in "
                f"{first.name}"
            )


def _words(dtype: str, shape: tuple[int, ...]) -> str:
    return f"{dtype} {' x '.join(map(str, shape)) or 'scalar'}"
