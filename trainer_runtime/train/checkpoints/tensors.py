"""Reads and writes the safetensors format (`core.files.tensor_header`) with torch and the standard
library alone."""

from __future__ import annotations

import ctypes
import json
import mmap
from collections.abc import Callable, Mapping
from pathlib import Path

import torch
from torch import Tensor

from trainer_runtime.core.files.regular import open_regular
from trainer_runtime.core.files.tensor_header import (
    LENGTH_BYTES,
    HeaderError,
    TensorEntry,
    read_header,
)

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
_WRITE_BYTES = 8 * 1024 * 1024

Write = Callable[[memoryview], object]


class TensorFileError(ValueError):
    """A file that is not whole safetensors, or a tensor that the format has no word for."""


def write_tensors(
    write: Write, tensors: Mapping[str, Tensor], described: Mapping[str, Tensor] | None = None
) -> None:
    """Hands the file's bytes to `write` in order, in pieces of at most 8 MiB.

    The tensors lie on the CPU and are contiguous; nothing is copied. `described`: tensors of their
    types and shapes on no device, where the others are made when they are asked for, one by one.

    Raises:
        TensorFileError: a tensor of a dtype outside `DTYPES`, not contiguous or not on the CPU.
    """
    # Wide types first, so that every tensor starts at a multiple of its own width.
    layout = tensors if described is None else described
    names = sorted(layout, key=lambda name: (-layout[name].element_size(), name))
    # Without it transformers does not take the file for one of PyTorch.
    header: dict[str, object] = {"__metadata__": {"format": "pt"}}
    position = 0
    for name in names:
        tensor = layout[name]
        is_readable = tensor.is_contiguous() and tensor.device.type in ("cpu", "meta")
        if tensor.dtype not in _NAMES or not is_readable:
            raise TensorFileError(f"{name}: {tensor.dtype} on {tensor.device} can't be written")
        end = position + tensor.nbytes
        header[name] = {
            "dtype": _NAMES[tensor.dtype],
            "shape": list(tensor.shape),
            "data_offsets": [position, end],
        }
        position = end
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % LENGTH_BYTES)
    write(memoryview(len(text).to_bytes(LENGTH_BYTES, "little") + text))
    for name in names:
        tensor = tensors[name]  # which lives as long as the view of its memory
        view = tensor_bytes(tensor)
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
    with open_regular(path) as file:
        try:
            start, entries = read_header(file.fileno())
        except HeaderError as error:
            raise TensorFileError(f"{path.name} {error}") from None
        dtypes = {entry.name: _dtype(entry, path.name) for entry in entries}
        with (
            mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped,
            memoryview(mapped) as whole,
        ):
            return {
                entry.name: _tensor(
                    whole[start + entry.begin : start + entry.end], dtypes[entry.name], entry.shape
                )
                for entry in entries
            }


def _dtype(entry: TensorEntry, file_name: str) -> torch.dtype:
    dtype = DTYPES.get(entry.dtype)
    if dtype is None:
        raise TensorFileError(f"{file_name}: {entry.name}: {entry.dtype} is not read")
    if entry.end - entry.begin != entry.elements * dtype.itemsize:
        raise TensorFileError(f"{file_name}: {entry.name}: offsets do not match the shape")
    return dtype


def _tensor(data: memoryview, dtype: torch.dtype, shape: tuple[int, ...]) -> Tensor:
    # A copy, not a view of the map: aligned as torch aligns, and independent of the file's fate.
    tensor = torch.empty(shape, dtype=dtype)
    if tensor.nbytes:
        tensor_bytes(tensor)[:] = data
    data.release()
    return tensor
