"""Judges a checkpoint of a foreign program: whole or not, and of which step. Executes none of it.

Archives of `torch.save` are checked against the CRC-32 of each record, safetensors by header and
size, folders of Hugging Face and of torch.distributed.checkpoint for the files that they name.
Opening archives with `weights_only` takes PyTorch: `train/foreign/whole.py`.
"""

from __future__ import annotations

import pickletools
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trainer_runtime.core.decoding import MAX_DOCUMENT_BYTES, decode_value
from trainer_runtime.core.files.regular import open_regular, read_regular
from trainer_runtime.core.files.tensor_header import HeaderError, read_header
from trainer_runtime.core.files.torch_archive import ArchiveError, check_archive

_ARCHIVES = frozenset({".pt", ".pth"})
# Others write files of these names, too: those that don't begin like an archive are left alone.
_MAYBE_ARCHIVES = frozenset({".ckpt", ".bin"})
_NEVER_EMPTY = frozenset({*_ARCHIVES, *_MAYBE_ARCHIVES, ".safetensors", ".json"})
_CODE = "training_args.bin"  # a pickle of the arguments themselves
_STATE = "trainer_state.json"
_WEIGHTS = (
    "model.safetensors",
    "pytorch_model.bin",
    "adapter_model.safetensors",
    "adapter_model.bin",
)
_DISTRIBUTED = ".metadata"
_SHARD = re.compile(r"__\d+_\d+\.distcp")
# Of torch.distributed.checkpoint; its operations are listed one by one.
_LARGEST_METADATA_BYTES = 32 << 20
_ODD = (ArithmeticError, EOFError, LookupError, RuntimeError, TypeError, ValueError)


class TornError(Exception):
    """A checkpoint that is not whole; says which file and what is wrong with it."""


@dataclass(frozen=True, slots=True)
class Judged:
    """A whole checkpoint. `step`: as its own files say, where they do; `archives`: the files that
    PyTorch is still to open, relative to it."""

    step: int | None
    archives: tuple[str, ...]


def files_of(place: Path) -> list[Path]:
    """The regular files of a checkpoint, itself one or a folder; links are not followed."""
    if not place.is_dir():
        return [place]
    return sorted(path for path in place.rglob("*") if path.is_file() and not path.is_symlink())


def judge(place: Path) -> Judged:
    """Read a checkpoint to its end.

    Raises:
        TornError: it is empty, torn, damaged or incomplete.
        OSError: it can't be read.
    """
    files = files_of(place)
    if not files:
        raise TornError(f"{place.name} holds no file")
    root = place if place.is_dir() else place.parent
    archives = []
    for path in files:
        name = path.relative_to(root).as_posix()
        if path.stat().st_size == 0 and path.suffix in _NEVER_EMPTY:
            raise TornError(f"{name} is empty: torn")
        if path.suffix == ".safetensors":
            _check_safetensors(path, name)
            archives.append(name)
        elif path.suffix == ".json":
            _document(path, name)
        elif _is_archive(path):
            _check_archive(path, name)
            archives.append(name)
    if not place.is_dir():
        return Judged(None, tuple(archives))
    _refuse_missing_shards(place)
    _refuse_incomplete_distributed(place)
    return Judged(_step_of_trainer(place), tuple(archives))


def _is_archive(path: Path) -> bool:
    if path.suffix not in _MAYBE_ARCHIVES or path.name == _CODE:
        return path.suffix in _ARCHIVES
    with path.open("rb") as file:
        return file.read(2) == b"PK"


def _check_archive(path: Path, name: str) -> None:
    try:
        check_archive(path)
    except ArchiveError as error:
        raise TornError(f"{name} {error}") from None


def _check_safetensors(path: Path, name: str) -> None:
    """Raises: TornError: header and size don't agree."""
    with open_regular(path) as file:
        try:
            read_header(file.fileno())
        except HeaderError as error:
            raise TornError(f"{name} {error}") from None


def _document(path: Path, name: str) -> Any:
    data = read_regular(path, MAX_DOCUMENT_BYTES)
    if len(data) > MAX_DOCUMENT_BYTES:
        raise TornError(f"{name} is larger than any that a framework writes")
    try:
        return decode_value(data, name, max_bytes=MAX_DOCUMENT_BYTES)
    except ValueError:
        raise TornError(f"{name} is not valid JSON: torn") from None


def _refuse_missing_shards(folder: Path) -> None:
    """Raises: TornError: an index names a file that is not there."""
    for index in folder.rglob("*.index.json"):
        document = _document(index, index.name)
        named = document.get("weight_map") if isinstance(document, dict) else None
        for name in sorted(set(named.values())) if isinstance(named, dict) else ():
            if not (index.parent / str(name)).is_file():
                raise TornError(f"{name} is missing, which {index.name} names")


def _step_of_trainer(folder: Path) -> int | None:
    """The step of a folder of Hugging Face Trainer, which has to be complete; None for others."""
    if not (folder / _STATE).is_file():
        return None
    has_weights = any((folder / name).is_file() for name in _WEIGHTS)
    if not has_weights and not any(folder.glob("*.index.json")):
        raise TornError(f"{folder.name} has no weights yet: incomplete")
    # Trainer itself would silently continue without it, with new moments.
    if not any(folder.glob("*optim*")) and not any(folder.glob("global_step*")):
        raise TornError(f"{folder.name}: optimizer.pt is missing: incomplete")
    state = _document(folder / _STATE, _STATE)
    step = state.get("global_step") if isinstance(state, dict) else None
    return step if type(step) is int and step >= 0 else None


def _refuse_incomplete_distributed(folder: Path) -> None:
    """Raises: TornError: shards without their metadata, or metadata without a shard it names."""
    homes = {path.parent for path in folder.rglob("*.distcp")}
    homes |= {path.parent for path in folder.rglob(_DISTRIBUTED)}
    for home in homes:
        metadata = home / _DISTRIBUTED
        if not metadata.is_file():
            raise TornError(f"{home.name} has no {_DISTRIBUTED}, which is written last: incomplete")
        for name in set(_named_shards(metadata)):
            if not (home / name).is_file() or (home / name).stat().st_size == 0:
                raise TornError(f"{name} is missing or empty, which {_DISTRIBUTED} names")


def _named_shards(metadata: Path) -> Iterator[str]:
    """The shards in a pickle, whose operations are listed and not carried out."""
    pickled = read_regular(metadata, _LARGEST_METADATA_BYTES)
    if len(pickled) > _LARGEST_METADATA_BYTES:
        raise TornError(f"{_DISTRIBUTED} is larger than any that PyTorch writes")
    try:
        for _, argument, _ in pickletools.genops(pickled):
            if isinstance(argument, str) and _SHARD.fullmatch(argument):
                yield argument
    except _ODD:
        raise TornError(f"{_DISTRIBUTED} is torn") from None
