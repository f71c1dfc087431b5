"""What `trainer_runtime follow` sends: packets of frames, and the lines that end its answers."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from itertools import accumulate, pairwise
from typing import Any, NamedTuple

from trainer_runtime.core.decoding import DecodingError, Fields, decode_fields
from trainer_runtime.core.protocol.command import command
from trainer_runtime.core.protocol.followed_files import LARGEST_WHOLE_BYTES
from trainmaster.backends.hosts import Stream
from trainmaster.backends.ssh.error_mapping import link_lost
from trainmaster.errors.errors import HostError

_SILENCE_S = 60.0
_READ_BYTES = 256 << 10
# Of a packet's headers: it holds 256 frames at most.
_LONGEST_LINE_BYTES = 256 << 10
# Of a packet's data: it is sent as soon as it holds more than 64 KiB.
_LARGEST_PACKET_BYTES = LARGEST_WHOLE_BYTES + (64 << 10)


class Frame(NamedTuple):
    """The next bytes of one file, or a whole file; `header` as `box.answer.follow` describes it,
    of which nothing but these names is checked."""

    run_id: str
    name: str
    header: Mapping[str, object]
    data: bytes

    def count(self, field: str) -> int:
        """A size, a place or a time of the header.

        Raises:
            DecodingError: it is missing or no such number.
        """
        value = self.header.get(field)
        if type(value) is int and 0 <= value < 2**63:
            return value
        raise DecodingError("a header", field, "is not a number of the allowed range")


class FollowStream:
    """Requests and answers on the channel of a host's follower."""

    def __init__(self, stream: Stream, host_name: str) -> None:
        self.stream = stream
        self._host_name = host_name
        self._data = b""
        self._at = 0

    async def ask(self, request: Mapping[str, Any]) -> None:
        """Raises: HostError, the link is lost."""
        try:
            async with asyncio.timeout(_SILENCE_S):
                await self.stream.write(json.dumps(request).encode() + b"\n")
        except TimeoutError:
            raise link_lost(self._host_name, "it takes nothing any more") from None

    async def packet(self) -> list[Frame] | Fields | None:
        """The frames of the next packet, or the line that ends the answer; None where the channel
        has ended.

        Raises:
            HostError: `HOST_DATA_REFUSED`; the link is lost.
        """
        line = await self._line()
        if line is None:
            return None
        try:
            header = decode_fields(
                line,
                "header",
                max_bytes=_LONGEST_LINE_BYTES,
                max_depth=_LONGEST_LINE_BYTES,  # only known fields are read, and those are flat
            )
        except DecodingError:
            raise unreadable(self._host_name) from None
        rows = header.values.get("frames")
        if rows is None:
            return header
        return await self._frames(rows)

    async def _frames(self, rows: object) -> list[Frame]:
        if not isinstance(rows, list):
            raise unreadable(self._host_name)
        lengths = [self._length(row) for row in rows]
        if sum(lengths) > _LARGEST_PACKET_BYTES:
            raise unreadable(self._host_name)
        data = await self._exactly(sum(lengths))
        frames = []
        for row, (begin, end) in zip(rows, pairwise(accumulate(lengths, initial=0)), strict=True):
            run_id, name = row.get("run"), row.get("file")
            if not isinstance(run_id, str) or not isinstance(name, str):
                raise unreadable(self._host_name)
            frames.append(Frame(run_id, name, row, data[begin:end]))
        return frames

    def _length(self, row: object) -> int:
        length = row.get("n") if isinstance(row, dict) else None
        if type(length) is not int or not 0 <= length <= LARGEST_WHOLE_BYTES:
            raise unreadable(self._host_name)
        return length

    async def _line(self) -> bytes | None:
        """The next line without its end; None where the output has ended before it."""
        while (end := self._data.find(b"\n", self._at)) < 0:
            if len(self._data) - self._at > _LONGEST_LINE_BYTES:
                raise unreadable(self._host_name)
            more = await self._read()
            if not more:
                return None
            self._data, self._at = self._data[self._at :] + more, 0
        line, self._at = self._data[self._at : end], end + 1
        return line

    async def _exactly(self, length: int) -> bytes:
        end = self._at + length
        if end <= len(self._data):
            data, self._at = self._data[self._at : end], end
            return data
        parts = [self._data[self._at :]]
        missing = length - len(parts[0])
        while missing > 0:
            more = await self._read()
            if not more:
                raise link_lost(self._host_name, "its follower ended in the middle of a file")
            parts.append(more[:missing])
            self._data, self._at = more, min(missing, len(more))
            missing -= len(more)
        return b"".join(parts)

    async def _read(self) -> bytes:
        try:
            async with asyncio.timeout(_SILENCE_S):
                return await self.stream.read(_READ_BYTES)
        except TimeoutError:
            raise link_lost(self._host_name, "it says nothing any more") from None


def unreadable(host_name: str) -> HostError:
    return HostError(
        "HOST_DATA_REFUSED",
        f"What {host_name} sends about its runs is invalid or beyond the limits.",
        f"{command('hosts check', host_name)}; its runs keep their last known state.",
        retryable=True,
    )
