"""Paths of this machine as people and agents write them."""

from __future__ import annotations

import os
from pathlib import Path

from trainmaster.errors.errors import UsageError

_LONGEST_PART, _LONGEST = 255, 4095
_SHOWN = 200


def user_path(text: str | Path, field: str | None = None) -> Path:
    """The absolute path that is meant: `~` and `~user` are replaced, and no link is followed.

    `field`: the argument that holds it.

    Raises:
        UsageError: `BAD_ARGUMENT`, no file can have this path.
    """
    expanded = os.path.expanduser(text)
    problem = _problem(expanded)
    if problem is not None:
        raise UsageError(
            "BAD_ARGUMENT",
            f"The path {str(text)[:_SHOWN]!r} can't be used: {problem}.",
            "Give the path of a file or folder of this machine.",
            field=field,
        )
    return Path(os.path.abspath(expanded))


def real_path(path: Path) -> Path:
    """Where a path leads, as far as it does: links in a loop lead to themselves.

    Raises:
        ValueError: it holds a zero byte.
    """
    return Path(os.path.realpath(path))


def _problem(path: str) -> str | None:
    if "\0" in path:
        return "it holds a zero byte"
    if path.startswith("~"):
        return f"no user is called {path.partition('/')[0][1:]!r}"
    try:
        data = os.fsencode(path)
    except UnicodeEncodeError:
        return "it holds half of a surrogate pair"
    if len(data) > _LONGEST or any(len(part) > _LONGEST_PART for part in data.split(b"/")):
        return f"its parts have at most {_LONGEST_PART} bytes each, {_LONGEST:,} in all"
    return None
