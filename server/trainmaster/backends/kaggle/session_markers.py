"""The first line of each session's log, which identifies the session."""

from __future__ import annotations

import re
from collections.abc import Sequence

_BEGINS = re.compile(r"^\S* ?Session ([1-9]\d{0,8}) of run ", re.MULTILINE)


def session_of_log(events: Sequence[tuple[str, str]]) -> int | None:
    """The session number in a log; None if it has none yet."""
    match = _BEGINS.search("".join(data for _, data in events))
    return None if match is None else int(match.group(1))
