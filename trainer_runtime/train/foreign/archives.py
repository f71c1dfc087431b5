"""Reads what others wrote with `torch.save` or as safetensors, without executing any of it."""

from __future__ import annotations

import contextlib
import math
import pickle
import re
import struct
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from trainer_runtime.core.decoding import MAX_ROW_DEPTH, decode_value
from trainer_runtime.train.checkpoints.tensors import TensorFileError, read_tensors
from trainer_runtime.train.checks.pickles import UnsafeTorchError, refuse_unsafe_torch
from trainer_runtime.train.foreign.records import NamesCodeError, UnusableError

# What reading a file that anybody may have written can end in.
_ODD = (
    ArithmeticError,
    AssertionError,
    AttributeError,
    EOFError,
    LookupError,
    MemoryError,
    NotImplementedError,
    OSError,
    RuntimeError,
    TypeError,
    ValueError,
    pickle.UnpicklingError,
    struct.error,
    zipfile.BadZipFile,
    zlib.error,
)
_GLOBAL = re.compile(r"GLOBAL ([\w.]+)")
_LONGEST_REASON = 200
_LARGEST_DOCUMENT_BYTES = 256 << 20


def read_archive(path: Path) -> Any:
    """What a file of `torch.save` holds, its tensors mapped from the disk.

    Every record is checked against the CRC-32 that the archive keeps of it, and then read with
    `weights_only=True`.

    Raises:
        UnusableError: it is missing, torn or damaged, or holds more than tensors and plain values;
            or this PyTorch is too old to open it.
    """
    _check_archive(path)
    try:
        refuse_unsafe_torch()
    except UnsafeTorchError as refused:
        raise UnusableError(f"{path.name} is not opened: {refused}") from None
    try:
        with _numpy_arrays():
            return torch.load(path, map_location="cpu", weights_only=True, mmap=True)
    except _ODD as error:
        if isinstance(error, pickle.UnpicklingError) and _GLOBAL.search(str(error)):
            raise NamesCodeError(f"{path.name} {_why(error)}") from None
        raise UnusableError(f"{path.name} {_why(error)}") from None


def read_weights(path: Path) -> dict[str, Tensor]:
    """The tensors of a safetensors file, whose header and size have to agree.

    Raises:
        UnusableError: it is missing or torn.
    """
    try:
        return read_tensors(path)
    except TensorFileError as error:
        raise UnusableError(str(error)) from None
    except OSError as error:
        raise UnusableError(f"{path.name} can't be read: {error.strerror}") from None


def read_document(path: Path) -> dict[str, Any]:
    """The object in a JSON file.

    Raises:
        UnusableError: it is missing, torn or no object.
    """
    try:
        if path.stat().st_size > _LARGEST_DOCUMENT_BYTES:
            raise UnusableError(f"{path.name} is larger than any that a framework writes")
        document = decode_value(
            path.read_bytes(), path.name, max_bytes=_LARGEST_DOCUMENT_BYTES, max_depth=MAX_ROW_DEPTH
        )
    except OSError as error:
        raise UnusableError(f"{path.name} can't be read: {error.strerror}") from None
    except ValueError:
        raise UnusableError(f"{path.name} is not valid JSON: torn, or damaged") from None
    if not isinstance(document, dict):
        raise UnusableError(f"{path.name} is not a JSON object")
    return document


def refuse_non_finite(named: Mapping[str, Any], file: str) -> None:
    """Raises:
    UnusableError: a tensor among the values holds NaN or infinity.
    """
    for name, tensor in named.items():
        # A float64 sum of narrower floats can't overflow, and shows any NaN or infinity.
        if not (isinstance(tensor, Tensor) and tensor.is_floating_point() and tensor.numel()):
            continue
        if not math.isfinite(tensor.sum(dtype=torch.float64).item()):
            raise UnusableError(f"{file}: {name} holds NaN or infinity")


def tensors_within(value: Any, prefix: str = "") -> Iterator[tuple[str, Tensor]]:
    """Every tensor at any depth of plain containers, by its path."""
    if isinstance(value, Tensor):
        yield prefix, value
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield from tensors_within(item, f"{prefix}/{key}" if prefix else str(key))
    elif isinstance(value, (list, tuple)):
        for index, item in enumerate(value):
            yield from tensors_within(item, f"{prefix}/{index}")


def _check_archive(path: Path) -> None:
    try:
        with path.open("rb") as file:
            begins = file.read(2)
        if not begins:
            raise UnusableError(f"{path.name} is empty")
        if begins != b"PK":
            raise UnusableError(
                f"{path.name} is not an archive of torch.save: torn, or written by a "
                "PyTorch before 1.6"
            )
        with zipfile.ZipFile(path) as archive:
            _refuse_compressed(archive, path.name)
            damaged = archive.testzip()
    except OSError as error:
        raise UnusableError(f"{path.name} can't be read: {error.strerror or error}") from None
    except _ODD:
        message = f"{path.name} is torn or damaged: its list of records is not whole"
        raise UnusableError(message) from None
    if damaged is not None:
        raise UnusableError(f"{path.name}: {damaged} differs from its CRC-32: it is damaged")


def _refuse_compressed(archive: zipfile.ZipFile, name: str) -> None:
    """PyTorch stores; what is packed may unpack to any size."""
    if any(record.compress_type != zipfile.ZIP_STORED for record in archive.infolist()):
        raise UnusableError(f"{name} holds packed records, which PyTorch writes none of")


@contextlib.contextmanager
def _numpy_arrays() -> Iterator[None]:
    """Lets plain arrays of numpy through, as Trainer keeps random numbers in; they run nothing."""
    try:
        import numpy
        from numpy.core.multiarray import _reconstruct  # its path in numpy 1 and 2
    except ImportError:
        yield
        return
    kinds = [type(numpy.dtype(kind)) for kind in (numpy.uint32, numpy.int64, numpy.float64)]
    with torch.serialization.safe_globals([_reconstruct, numpy.ndarray, numpy.dtype, *kinds]):
        yield


def _why(error: BaseException) -> str:
    text = str(error)
    if isinstance(error, pickle.UnpicklingError):
        named = _GLOBAL.search(text)
        if named is not None:
            return f"names {named.group(1)}, which is code: it was not read, and nothing of it ran"
        return "holds more than tensors and plain values, or is damaged"
    first = " ".join(text.split())[:_LONGEST_REASON]
    return f"can't be read: {first or type(error).__name__}"
