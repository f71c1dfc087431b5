"""Log text as it may be shown: an attacker could have written it."""

from __future__ import annotations

import re

LONGEST_LINE = 2000
_ANSI = re.compile(
    r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-Z\\^_]|[ -/]+[0-~])"
)
# Control characters but the tab; bidirectional marks, overrides and isolates; zero-width ones, and
# the tags and variation selectors in which text can be written that only a model reads.
_UNSHOWABLE = re.compile(
    "[\x00-\x08\x0a-\x1f\x7f-\x9f\xad\u034f\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u2069"
    "\ufe00-\ufe0f\ufeff\ufff9-\ufffb\U000e0000-\U000e0fff]"
)


def shown(line: bytes) -> str:
    """One line as a terminal would leave it standing, harmless and at most 2,000 characters long.

    What a progress bar wrote over itself is left out: of the parts between carriage returns, the
    last that is not empty counts.
    """
    text = _ANSI.sub("", line.decode("utf-8", errors="replace"))
    parts = [part for part in text.split("\r") if part.strip()]
    text = _UNSHOWABLE.sub("", parts[-1] if parts else "")
    if len(text) > LONGEST_LINE:
        return f"{text[:LONGEST_LINE]} … ({len(text) - LONGEST_LINE} more characters)"
    return text
