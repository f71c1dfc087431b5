"""Whether the beginning of a file can be that of a log."""

from __future__ import annotations

JUDGED_BYTES = 1 << 16
# Tab, newline, carriage return, backspace, escape, form feed; NULs stand where a log was
# truncated under its writer.
_SEEN_IN_LOGS = b"\t\n\r\b\x1b\x0c\0"
_CONTROL = bytes(byte for byte in range(32) if byte not in _SEEN_IN_LOGS) + b"\x7f"
_MOST_CONTROL = 0.05  # of random bytes 0.1 are
_OTHER_WIDTHS = (b"\xff\xfe", b"\xfe\xff")

BINARY, TWO_BYTES = "binary", "two bytes a letter"


def why_no_text(data: bytes) -> str | None:
    """What a file that begins so is in place of a log: `BINARY`, or `TWO_BYTES` a letter."""
    begin = data.lstrip(b"\0")[:JUDGED_BYTES]
    if begin.startswith(_OTHER_WIDTHS):
        return TWO_BYTES
    control = len(begin) - len(begin.translate(None, _CONTROL))
    return BINARY if control > _MOST_CONTROL * len(begin) else None
