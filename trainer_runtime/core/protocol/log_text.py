"""Whether the beginning of a file can be that of a log."""

from __future__ import annotations

JUDGED_BYTES = 1 << 16
# Tab, newline, carriage return, backspace, escape, form feed; NULs stand where a log was
# truncated under its writer.
_SEEN_IN_LOGS = b"\t\n\r\b\x1b\x0c\0"
_CONTROL = bytes(byte for byte in range(32) if byte not in _SEEN_IN_LOGS) + b"\x7f"
_MOST_CONTROL = 0.05  # of random bytes 0.1 are


def is_binary(data: bytes) -> bool:
    """Whether a file that begins so holds anything but the text of a log."""
    begin = data.lstrip(b"\0")[:JUDGED_BYTES]
    control = len(begin) - len(begin.translate(None, _CONTROL))
    return control > _MOST_CONTROL * len(begin)
