"""Reads and writes the safetensors format with torch and the standard library alone.

Layout: an 8-byte little-endian header length, the header as JSON (name -> dtype, shape, offsets),
then the tensors' bytes without gaps (https://github.com/huggingface/safetensors, "Format").
"""

from __future__ import annotations

import ctypes
import json
import mmap
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

DTYPES: dict[str, torch.dtype] = {
    "F64": torch.float64,
    "F32": torch.float32,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "I64": torch.int64,
    "I32": torch.int32,
    "I16": torch.int16,
    "I8": torch.int8,
    "U8": torch.uint8,
    "BOOL": torch.bool,
}
_NAMES = {dtype: name for name, dtype in DTYPES.items()}
_LENGTH_BYTES = 8
_LARGEST_HEADER_BYTES = 100_000_000
_WRITE_BYTES = 8 * 1024 * 1024

Write = Callable[[memoryview], object]


class TensorFileError(ValueError):
    """A file that is not whole safetensors, or a tensor that the format has no word for."""


def write_tensors(write: Write, tensors: Mapping[str, Tensor]) -> None:
    """Hands the file's bytes to `write` in order, in pieces of at most 8 MiB.

    The tensors lie on the CPU and are contiguous; nothing is copied.

    Raises:
        TensorFileError: a tensor of a dtype outside `DTYPES`, not contiguous or not on the CPU.
    """
    # Wide types first, so that every tensor starts at a multiple of its own width.
    names = sorted(tensors, key=lambda name: (-tensors[name].element_size(), name))
    # Without it transformers does not take the file for one of PyTorch.
    header: dict[str, object] = {"__metadata__": {"format": "pt"}}
    position = 0
    for name in names:
        tensor = tensors[name]
        if tensor.dtype not in _NAMES or not tensor.is_contiguous() or tensor.device.type != "cpu":
            raise TensorFileError(f"{name}: {tensor.dtype} on {tensor.device} can't be written")
        end = position + tensor.nbytes
        header[name] = {
            "dtype": _NAMES[tensor.dtype],
            "shape": list(tensor.shape),
            "data_offsets": [position, end],
        }
        position = end
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % _LENGTH_BYTES)
    write(memoryview(len(text).to_bytes(_LENGTH_BYTES, "little") + text))
    for name in names:
        view = tensor_bytes(tensors[name])
        for start in range(0, len(view), _WRITE_BYTES):
            write(view[start : start + _WRITE_BYTES])


def tensor_bytes(tensor: Tensor) -> memoryview:
    """The memory of a contiguous CPU tensor; valid while the tensor lives."""
    buffer = (ctypes.c_char * tensor.nbytes).from_address(tensor.data_ptr())
    return memoryview(buffer).cast("B")


def read_tensors(path: Path) -> dict[str, Tensor]:
    """Every tensor of a file, in memory of its own.

    Raises:
        TensorFileError: the file is malformed in any way: torn, with gaps, overlaps or leftovers.
        OSError: it can't be read.
    """
    with path.open("rb") as file:
        size = file.seek(0, 2)
        if size < _LENGTH_BYTES:
            raise TensorFileError(f"{path.name}: {size} bytes are no safetensors file")
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
            start, header = _header(mapped, path.name)
            spans = [_span(name, entry, size - start, path.name) for name, entry in header.items()]
            _refuse_gaps(spans, size - start, path.name)
            with memoryview(mapped) as whole:
                return {
                    name: _tensor(whole[start + begin : start + end], dtype, shape)
                    for name, dtype, shape, begin, end in spans
                }


Span = tuple[str, torch.dtype, list[int], int, int]


def _header(mapped: mmap.mmap, file_name: str) -> tuple[int, dict[str, Any]]:
    length = int.from_bytes(mapped[:_LENGTH_BYTES], "little")
    start = _LENGTH_BYTES + length
    if length > _LARGEST_HEADER_BYTES or start > len(mapped):
        raise TensorFileError(f"{file_name}: a header of {length} bytes does not fit the file")
    try:
        header = json.loads(mapped[_LENGTH_BYTES:start], object_pairs_hook=_without_repeats)
    except ValueError as error:
        raise TensorFileError(f"{file_name}: the header is not JSON: {error}") from None
    if not isinstance(header, dict):
        raise TensorFileError(f"{file_name}: the header is not an object")
    header.pop("__metadata__", None)
    return start, header


def _without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a name stands twice")
    return found


def _span(name: str, entry: Any, data_bytes: int, file_name: str) -> Span:
    try:
        dtype, shape, (begin, end) = DTYPES[entry["dtype"]], entry["shape"], entry["data_offsets"]
        numbers = [*shape, begin, end]
    except (KeyError, TypeError, ValueError):
        raise TensorFileError(f"{file_name}: {name}: misshapen entry") from None
    if not all(type(value) is int and value >= 0 for value in numbers):
        raise TensorFileError(f"{file_name}: {name}: shape and offsets must be whole numbers")
    expected = dtype.itemsize
    for extent in shape:
        expected *= extent
    if end - begin != expected or end > data_bytes:
        raise TensorFileError(f"{file_name}: {name}: offsets do not match the shape")
    return name, dtype, shape, begin, end


def _refuse_gaps(spans: list[Span], data_bytes: int, file_name: str) -> None:
    position = 0
    for name, _, _, begin, end in sorted(spans, key=lambda span: (span[3], span[4])):
        if begin != position:
            raise TensorFileError(f"{file_name}: {name}: starts at {begin} instead of {position}")
        position = end
    if position != data_bytes:
        raise TensorFileError(f"{file_name}: {data_bytes - position} bytes belong to no tensor")


def _tensor(data: memoryview, dtype: torch.dtype, shape: list[int]) -> Tensor:
    # A copy, not a view of the map: aligned as torch aligns, and independent of the file's fate.
    tensor = torch.empty(shape, dtype=dtype)
    if tensor.nbytes:
        tensor_bytes(tensor)[:] = data
    data.release()
    return tensor
