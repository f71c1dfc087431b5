"""Appended files whose old regions are compressed: `<name>.compacted/<first byte>.gz`.

A file's offsets stay as they are. What was compressed is a hole in the file, which reads as zeros;
none of the lines in such files holds a zero byte, so that zeros alone mark what is compressed.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping

REGION_BYTES = 4 << 20
LARGEST_ARCHIVE_BYTES = REGION_BYTES + (64 << 10)  # of what can't be compressed
_GZIP = 31  # zlib's window, in gzip's container: `zcat` reads what is written


def archive_of(name: str, begin: int) -> str:
    """The file that holds the region from byte `begin` on, once it is compressed."""
    return f"{name}.compacted/{begin:015d}.gz"


def pack(region: bytes) -> bytes:
    """Compressed, so that `unpack` gives it back."""
    packer = zlib.compressobj(6, zlib.DEFLATED, _GZIP)
    return packer.compress(region) + packer.flush()


def unpack(packed: bytes) -> bytes | None:
    """The region; None for anything but a whole one."""
    unpacker = zlib.decompressobj(_GZIP)
    try:
        region = unpacker.decompress(packed, REGION_BYTES + 1)
    except zlib.error:
        return None
    # Its checksum is compared where the end is reached.
    return region if unpacker.eof and len(region) == REGION_BYTES else None


def regions_with_holes(offset: int, data: bytes) -> range:
    """The first bytes of the regions that `data`, read from `offset` on, may have holes in."""
    if b"\0" not in data:
        return range(0)
    return range(offset - offset % REGION_BYTES, offset + len(data), REGION_BYTES)


def fill_holes(offset: int, data: bytes, regions: Mapping[int, bytes]) -> bytes:
    """`data`, with the bytes of these regions, by the first byte of each."""
    parts, at = [], offset
    while at < offset + len(data):
        begin = at - at % REGION_BYTES
        end = min(begin + REGION_BYTES, offset + len(data))
        region = regions.get(begin)
        source, first = (data, offset) if region is None else (region, begin)
        parts.append(source[at - first : end - first])
        at = end
    return b"".join(parts)
