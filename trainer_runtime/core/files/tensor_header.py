"""Reads the header of a file of safetensors that anybody may have written.

Layout: an 8-byte little-endian header length, the header as JSON (name -> dtype, shape, offsets),
then the tensors' bytes without gaps (https://github.com/huggingface/safetensors, "Format").
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

LENGTH_BYTES = 8
# The header of a file with 100,000 tensors has some 12 MB.
LARGEST_HEADER_BYTES = 32 << 20
_MOST_DIMENSIONS = 64
_BITS = 8  # an element has one at least


class HeaderError(ValueError):
    """A file that is not whole safetensors; the words that follow its name."""


@dataclass(frozen=True, slots=True)
class TensorEntry:
    """`begin` and `end`: of its bytes, from the end of the header on."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    elements: int
    begin: int
    end: int


def read_header(descriptor: int) -> tuple[int, list[TensorEntry]]:
    """Where the tensors' bytes begin in the file, and its tensors in the order of those.

    Raises:
        HeaderError: it is malformed in any way: torn, with gaps, overlaps or leftovers.
        OSError: it can't be read.
    """
    size = os.fstat(descriptor).st_size
    head = os.pread(descriptor, LENGTH_BYTES, 0)
    length = int.from_bytes(head, "little")
    start = LENGTH_BYTES + length
    if len(head) < LENGTH_BYTES or length > LARGEST_HEADER_BYTES or start > size:
        raise HeaderError("has no whole header: torn")
    entries = [_entry(name, value) for name, value in _parsed(descriptor, length).items()]
    entries.sort(key=lambda entry: (entry.begin, entry.end))
    _refuse_gaps(entries, size - start)
    return start, entries


def _parsed(descriptor: int, length: int) -> dict[str, Any]:
    try:
        text = os.pread(descriptor, length, LENGTH_BYTES).decode()
        header = json.loads(text, object_pairs_hook=_without_repeats)
    except (ValueError, RecursionError) as error:
        why = str(error) if isinstance(error, HeaderError) else "has a header that is not JSON"
        raise HeaderError(why) from None
    if not isinstance(header, dict):
        raise HeaderError("has a header that is not an object")
    header.pop("__metadata__", None)
    return header


def _without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    unique = dict(pairs)
    if len(unique) != len(pairs):
        raise HeaderError("names a tensor twice")
    return unique


def _entry(name: str, value: Any) -> TensorEntry:
    try:
        dtype, shape, (begin, end) = value["dtype"], value["shape"], value["data_offsets"]
        numbers = [*shape, begin, end]
    except (KeyError, TypeError, ValueError):
        raise HeaderError(f"has a misshapen entry for {name}") from None
    if not isinstance(dtype, str) or len(shape) > _MOST_DIMENSIONS:
        raise HeaderError(f"has a misshapen entry for {name}")
    if not all(type(number) is int and number >= 0 for number in numbers):
        raise HeaderError(f"has a misshapen entry for {name}")
    elements = 1
    for extent in shape:
        elements *= extent
    if elements > max(0, end - begin) * _BITS:
        raise HeaderError(f"has fewer bytes of {name} than its shape takes")
    return TensorEntry(name, dtype, tuple(shape), elements, begin, end)


def _refuse_gaps(entries: Sequence[TensorEntry], data_bytes: int) -> None:
    position = 0
    for entry in entries:
        if entry.begin != position or entry.end < position:
            raise HeaderError(f"has {entry.name} at {entry.begin} instead of {position}: torn")
        position = entry.end
    if position != data_bytes:
        raise HeaderError(f"has {data_bytes} bytes instead of {position} behind its header: torn")
