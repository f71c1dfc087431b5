"""Reads what others wrote with `torch.save` or as safetensors, without executing any of it."""

from __future__ import annotations

import contextlib
import math
import pickle
import re
import struct
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from trainer_runtime.core.decoding import MAX_DOCUMENT_BYTES, MAX_ROW_DEPTH, decode_value
from trainer_runtime.core.files.regular import read_regular
from trainer_runtime.core.files.torch_archive import ArchiveError, check_archive
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
)
_GLOBAL = re.compile(r"GLOBAL ([\w.]+)")
_LONGEST_REASON = 200
_ELEMENTS_AT_ONCE = 16 << 20
# Bytes of all tensors, to those of their file: tied ones count once, views of them do not.
_MOST_VIEWS = 4


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
            content = torch.load(path, map_location="cpu", weights_only=True, mmap=True)
        _refuse_shared(content, path)
    except _ODD as error:
        if isinstance(error, pickle.UnpicklingError) and _GLOBAL.search(str(error)):
            raise NamesCodeError(f"{path.name} {_why(error)}") from None
        raise UnusableError(f"{path.name} {_why(error)}") from None
    return content


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
        data = read_regular(path, MAX_DOCUMENT_BYTES)
        if len(data) > MAX_DOCUMENT_BYTES:
            raise UnusableError(f"{path.name} is larger than any that a framework writes")
        document = decode_value(
            data, path.name, max_bytes=MAX_DOCUMENT_BYTES, max_depth=MAX_ROW_DEPTH
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
        if isinstance(tensor, Tensor) and tensor.is_floating_point() and not _is_finite(tensor):
            raise UnusableError(f"{file}: {name} holds NaN or infinity")


def tensors_within(value: Any) -> Iterator[tuple[str, Tensor]]:
    """Every tensor at any depth of plain containers, by its path.

    What stands in several places is given at one of them: a pickle can name a container twice at
    each of sixty levels.
    """
    seen: set[int] = set()
    left: list[tuple[str, Any]] = [("", value)]
    while left:
        path, holder = left.pop()
        if id(holder) in seen:
            continue
        seen.add(id(holder))
        if isinstance(holder, Tensor):
            yield path, holder
        elif isinstance(holder, (Mapping, list, tuple)):
            items = holder.items() if isinstance(holder, Mapping) else enumerate(holder)
            inner = [(f"{path}/{key}" if path else str(key), item) for key, item in items]
            left.extend(reversed(inner))


def _is_finite(tensor: Tensor) -> bool:
    """A float64 sum of narrower floats can't overflow, and shows any NaN or infinity."""
    return all(
        math.isfinite(piece.sum(dtype=torch.float64).item())
        for piece in torch.split(tensor.flatten(), _ELEMENTS_AT_ONCE)
    )


def _refuse_shared(content: Any, path: Path) -> None:
    """Raises:
    UnusableError: its tensors are many times the file, as views of the same bytes.
    """
    most, total = _MOST_VIEWS * path.stat().st_size, 0
    views: set[tuple[object, ...]] = set()
    for name, tensor in tensors_within(content):
        if tensor.layout is not torch.strided:
            continue
        view = (tensor.data_ptr(), tensor.dtype, tensor.shape, tensor.stride())
        total += 0 if view in views else tensor.numel() * tensor.element_size()
        views.add(view)
        if total > most:
            raise UnusableError(f"{path.name}: {name} repeats bytes of the file, as no weights do")


def _check_archive(path: Path) -> None:
    try:
        check_archive(path)
    except ArchiveError as error:
        raise UnusableError(f"{path.name} {error}") from None
    except OSError as error:
        raise UnusableError(f"{path.name} can't be read: {error.strerror or error}") from None


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
