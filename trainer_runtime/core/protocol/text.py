"""The border for words: text from outside, as a terminal, an answer or an error may show it.

Lines of logs, names, reasons and replies of other programs may have been written by an attacker.
"""

from __future__ import annotations

import re
from functools import cache

LONGEST_LINE = 2000
LONGEST_TEXT = 4000
# Of a longer line only so much is read; what a progress bar overwrote beyond it is not collapsed.
_LONGEST_READ_BYTES = 64 << 10
_READ_PER_CHARACTER = 8
# CSI, OSC, the other strings (DCS, SOS, PM, APC) and short sequences, in 7 and in 8 bits.
_ANSI = (
    r"(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]"
    r"|(?:\x1b[\]PX^_]|[\x90\x98\x9d-\x9f])[^\x07\x1b\x9c]*(?:\x07|\x1b\\|\x9c)?"
    r"|\x1b(?:[@-OQ-WYZ\\]|[ -/]+[0-~])"
)
# Control characters but tab and line feed; bidirectional marks, overrides and isolates; zero-width
# and blank letters, and the tags and variation selectors in which text can be written that only a
# model reads.
_UNSHOWABLE = (
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f"
    "\u2028-\u202e\u2060-\u206f\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb\U0001bca0-\U0001bca3"
    "\U0001d173-\U0001d17a\U000e0000-\U000e0fff]+"
)
_CODE_WORD = re.compile(r"[A-Za-z0-9_]{1,40}(?:[:/.-][A-Za-z0-9_]{1,40}){0,4}")
_SURROGATES = re.compile("[\ud800-\udfff]")


def shown(line: bytes, *, left_out: int = 0) -> str:
    """One line as a terminal would leave it standing, harmless and at most 2,000 characters long.

    What a progress bar wrote over itself is left out: of the parts between carriage returns, the
    last that is not empty counts. `left_out`: bytes of the line that were not read.
    """
    if len(line) <= LONGEST_LINE and not left_out and line.isascii():
        text = line.decode("ascii")
        if text.isprintable():
            return text if text.strip() else ""
    if len(line) > _LONGEST_READ_BYTES:
        part = last_part(line)
        line, left_out = part[:_LONGEST_READ_BYTES], left_out + len(part[_LONGEST_READ_BYTES:])
    text = _compiled(_ANSI).sub("", line.decode("utf-8", errors="replace"))
    parts = [part for part in text.split("\r") if part.strip()]
    text = _compiled(_UNSHOWABLE).sub("", parts[-1] if parts else "").replace("\n", "")
    return _cut(text, LONGEST_LINE, left_out)


def last_part(line: bytes) -> bytes:
    """What follows the last carriage return that is followed by something visible."""
    line = line.rstrip()
    return line[line.rfind(b"\r") + 1 :]


def cleaned(text: str, longest: int = LONGEST_TEXT, *, multiline: bool = False) -> str:
    """Any text from outside, harmless and at most `longest` characters long, and a remark.

    Control and escape sequences, bidirectional and invisible characters are removed; a lone
    surrogate becomes U+FFFD. Line feeds and tabs become spaces, unless it is `multiline`.
    """
    if len(text) <= longest and text.isascii() and text.isprintable():
        return text
    left_out = max(0, len(text) - longest * _READ_PER_CHARACTER)
    text = text[: longest * _READ_PER_CHARACTER]
    if not text.isprintable():  # else no sequence begins in it
        text = _compiled(_ANSI).sub("", text)
    text = _SURROGATES.sub("\ufffd", text.replace("\r\n", "\n").replace("\r", "\n"))
    if not multiline:
        text = text.replace("\n", " ").replace("\t", " ")
    return _cut(_compiled(_UNSHOWABLE).sub("", text), longest, left_out)


def code_word(text: str) -> str:
    """A code that another machine gave, where it has the form of one; else `unknown`."""
    return text if _CODE_WORD.fullmatch(text) else "unknown"


@cache
def _compiled(pattern: str) -> re.Pattern[str]:
    """The two long patterns are compiled where a text needs them: 2 ms that few commands need."""
    return re.compile(pattern)


def _cut(text: str, longest: int, left_out: int) -> str:
    missing = max(0, len(text) - longest) + left_out
    return f"{text[:longest]} … ({missing} more characters)" if missing else text
