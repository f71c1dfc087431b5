"""Files of ready tokens: which program wrote them, by header or index, and their numbers.

Sources: karpathy/nanoGPT `data/*/prepare.py` (16 bits, no header); karpathy/llm.c
`dev/data/data_common.py` (a header of 256 32-bit numbers; KellerJordan/modded-nanogpt writes the
same); NVIDIA/Megatron-LM `core/datasets/indexed_dataset.py` (`.bin` beside `.idx`).
"""

from __future__ import annotations

import os
import re
import struct
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import BinaryIO

from trainer_runtime.core.files.regular import open_regular

INDEX_ENDING = ".idx"
_CHUNK_BYTES = 4 << 20
# By magic number and version: the type code of `array`.
_LLMC_HEADERS = {(20240520, 1): "H", (20240801, 7): "I"}
_LLMC_HEADER_BYTES = 1024
_LLMC_MAGICS = frozenset(magic for magic, _ in _LLMC_HEADERS)
_MEGATRON_MAGIC = b"MMIDIDX\x00\x00"
_MEGATRON_HEAD = struct.Struct("<9sQBQQ")
_MEGATRON_CODES = {1: "B", 2: "b", 3: "h", 4: "i", 5: "q", 8: "H"}
_SAMPLE_BYTES = 64 << 10
# Of 32-bit numbers, every other half is at most this for a vocabulary of up to 262,144 tokens.
_LARGEST_HIGH_HALF = 3
_LEAST_SAMPLE = 64
# nanoGPT's val.bin, llm.c's *_val_000000.bin, Megatron's *_valid_*.
_VALIDATION = re.compile(r"(?:^|[_.-])val(?:id|idation)?(?:[_.-]|\d|$)")


class TokenFileError(ValueError):
    """A file of tokens that is cut off, of an unknown kind, or ambiguous."""


@dataclass(frozen=True, slots=True)
class TokenFile:
    """Where a file's numbers are: `tokens` of `array`'s type `code`, from byte `begin` on.

    `layout`: who writes such files. `documents`: as an index counts them; None without one.
    """

    path: Path
    layout: str
    code: str
    begin: int
    tokens: int
    documents: int | None = None

    def numbers(self) -> Iterator[array[int]]:
        """The tokens, some millions at once.

        Raises:
            OSError: the file can't be read.
            TokenFileError: it became shorter meanwhile.
        """
        left, most = self.tokens, _CHUNK_BYTES // array(self.code).itemsize
        with open_regular(self.path) as stream:
            stream.seek(self.begin)
            while left:
                chunk = array(self.code)
                try:
                    chunk.fromfile(stream, min(left, most))
                except EOFError:
                    raise TokenFileError(f"{self.path.name} became shorter") from None
                left -= len(chunk)
                yield chunk


def open_token_file(path: Path) -> TokenFile:
    """What a `.bin` holds: by Megatron's index beside it, by llm.c's header, else nanoGPT's.

    Raises:
        TokenFileError: it is cut off, of an unknown version, or its numbers could be of 32 bits.
        OSError: it can't be read.
    """
    index = path.with_suffix(INDEX_ENDING)
    if index.exists():
        return _by_index(path, index)
    size = path.stat().st_size
    with open_regular(path) as stream:
        head = stream.read(12)
        if len(head) == 12 and struct.unpack_from("<i", head)[0] in _LLMC_MAGICS:
            return _by_header(path, size, head)
        _refuse_wide(path, size, stream.read(_SAMPLE_BYTES - len(head)), head)
        stream.seek(size // 2 & ~7)
        _refuse_wide(path, size, stream.read(_SAMPLE_BYTES))
    if size % 2:
        raise TokenFileError(f"{path.name} is cut off: 16-bit numbers take an even number of bytes")
    return TokenFile(path, "nanoGPT", "H", 0, size // 2)


def tokens_in(files: Sequence[Path]) -> tuple[str | None, list[TokenFile]]:
    """What is wrong with files of tokens and their indices, and the files.

    Raises:
        OSError: one can't be read.
    """
    found: list[TokenFile] = []
    there = set(files)
    for path in files:
        beside = path.with_suffix(INDEX_ENDING)
        if path.suffix == INDEX_ENDING:
            if path.with_suffix(".bin") not in there:
                return f"{path.name} is an index without its .bin", found
        elif beside not in there and beside.exists():
            return f"{path.name} has an index beside it: give the folder that holds both", found
        else:
            try:
                found.append(open_token_file(path))
            except TokenFileError as error:
                return str(error), found
    return None, found


def validation_names(names: Sequence[str]) -> list[str]:
    """Those of a source's files of tokens that are named as validation; none if all are."""
    found = [name for name in names if _VALIDATION.search(PurePath(name).stem)]
    return [] if len(found) == len(names) else found


def _by_header(path: Path, size: int, head: bytes) -> TokenFile:
    magic, version, tokens = struct.unpack("<iii", head)
    code = _LLMC_HEADERS.get((magic, version))
    if code is None:
        raise TokenFileError(f"{path.name} has llm.c's header in version {version}, an unknown one")
    if size != _LLMC_HEADER_BYTES + tokens * array(code).itemsize:
        raise TokenFileError(
            f"{path.name} is cut off: its header counts {tokens:,} tokens of "
            f"{array(code).itemsize * 8} bits, and it has {size:,} bytes"
        )
    return TokenFile(path, "llm.c", code, _LLMC_HEADER_BYTES, tokens)


def _by_index(path: Path, index: Path) -> TokenFile:
    with open_regular(index) as stream:
        head = stream.read(_MEGATRON_HEAD.size)
        if len(head) < _MEGATRON_HEAD.size or not head.startswith(_MEGATRON_MAGIC):
            raise TokenFileError(f"{index.name} is not Megatron's index of {path.name}")
        _, version, dtype, sequences, documents = _MEGATRON_HEAD.unpack(head)
        code = _MEGATRON_CODES.get(dtype)
        if version != 1 or code is None:
            raise TokenFileError(
                f"{index.name} is Megatron's index of version {version} with numbers of type "
                f"{dtype}; whole numbers of version 1 are read"
            )
        size, item = path.stat().st_size, array(code).itemsize
        counted_bytes = _end_of_last(stream, sequences, documents, item)
    length = (counted_bytes or 0) // item
    if size != counted_bytes or size % item:
        raise TokenFileError(
            f"{path.name} and {index.name} don't belong together, or one is cut off: the index "
            f"counts {length:,} tokens of {item * 8} bits, and there are {size:,} bytes"
        )
    return TokenFile(path, "Megatron", code, 0, length, max(0, documents - 1))


def _end_of_last(stream: BinaryIO, sequences: int, documents: int, item: int) -> int | None:
    """Where the last sequence ends, in bytes; None where the index is cut off.

    After the head stand each sequence's length (32 bits), where each begins (64 bits) and the
    first sequence of each document (64 bits). Only the last sequence's are read: an index of a
    terabyte is itself gigabytes long.
    """
    lengths, begins = _MEGATRON_HEAD.size, _MEGATRON_HEAD.size + 4 * sequences
    if stream.seek(0, os.SEEK_END) < begins + 8 * (sequences + documents):
        return None
    if not sequences:
        return 0
    stream.seek(lengths + 4 * (sequences - 1))
    (length,) = struct.unpack("<i", stream.read(4))
    stream.seek(begins + 8 * (sequences - 1))
    (begin,) = struct.unpack("<q", stream.read(8))
    return int(begin + length * item)


def _refuse_wide(path: Path, size: int, sample: bytes, before: bytes = b"") -> None:
    """Numbers of 32 or 64 bits, read as 16, would be tokens with zeros between them."""
    data = before + sample
    halves = array("H", data[: len(data) // 4 * 4])
    if size % 4 or len(halves) < _LEAST_SAMPLE:
        return
    low, high = halves[0::2], halves[1::2]
    if max(high) <= _LARGEST_HIGH_HALF < max(low):
        raise TokenFileError(
            f"{path.name} has no header, and its numbers seem to be 32 or 64 bits wide; without a "
            "header 16 bits are read. Write them as 16 bits (`numpy.fromfile(FILE, 'int32')"
            ".astype('uint16').tofile(OTHER)`), with llm.c's header, or give Megatron's .idx too"
        )
