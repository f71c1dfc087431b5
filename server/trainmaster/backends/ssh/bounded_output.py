"""The output of commands on hosts, of which no more is read than any answer may have."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from trainer_runtime.core.decoding import MAX_DOCUMENT_BYTES
from trainer_runtime.core.protocol.command import command
from trainer_runtime.core.protocol.figures import size_text
from trainmaster.errors.errors import HostError

_PIECE_BYTES = 1 << 18


async def read_bounded(read: Callable[[int], Awaitable[bytes]], host: str) -> bytes:
    """All that `read` gives until its end.

    Raises:
        HostError: `HOST_DATA_REFUSED`, it is more than 256 MiB.
    """
    pieces, received = [], 0
    while piece := await read(_PIECE_BYTES):
        pieces.append(piece)
        received += len(piece)
        if received > MAX_DOCUMENT_BYTES:
            raise HostError(
                "HOST_DATA_REFUSED",
                f"A command on {host} printed more than {size_text(MAX_DOCUMENT_BYTES)}.",
                f"{command('hosts check', host)}: find out what its shell or its files print.",
            )
    return b"".join(pieces)
