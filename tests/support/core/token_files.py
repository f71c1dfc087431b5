"""Files of tokens as the programs that train on them write them."""

from __future__ import annotations

import struct
from array import array
from collections.abc import Sequence
from pathlib import Path

_MEGATRON_TYPES = {"B": 1, "b": 2, "h": 3, "i": 4, "q": 5, "H": 8}


def write_raw(path: Path, tokens: Sequence[int], code: str = "H") -> Path:
    """As nanoGPT's `data/*/prepare.py`: numbers alone."""
    path.write_bytes(array(code, tokens).tobytes())
    return path


def write_llmc(path: Path, tokens: Sequence[int], code: str = "H") -> Path:
    """As llm.c's `write_datafile`, for GPT-2 (16 bits) and Llama 3 (32 bits)."""
    magic, version = {"H": (20240520, 1), "I": (20240801, 7)}[code]
    header = struct.pack("<3i", magic, version, len(tokens)).ljust(1024, b"\0")
    path.write_bytes(header + array(code, tokens).tobytes())
    return path


def write_megatron(path: Path, documents: Sequence[Sequence[int]], code: str = "i") -> Path:
    """As Megatron's `IndexedDatasetBuilder`: `path`.bin beside `path`.idx."""
    flat = [token for document in documents for token in document]
    binary = write_raw(path.with_suffix(".bin"), flat, code)
    count, item = len(documents), array(code).itemsize
    lengths = [len(document) for document in documents]
    starts = [item * sum(lengths[:number]) for number in range(count)]
    path.with_suffix(".idx").write_bytes(
        struct.pack("<9sQBQQ", b"MMIDIDX\0\0", 1, _MEGATRON_TYPES[code], count, count + 1)
        + array("i", lengths).tobytes()
        + array("q", starts).tobytes()
        + array("q", range(count + 1)).tobytes()
    )
    return binary
