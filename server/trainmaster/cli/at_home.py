"""The option before every command: whose home it works in."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from trainmaster.home.paths import HOME_VARIABLE

OPTION = "--home"


@contextmanager
def at_home(arguments: Sequence[str]) -> Iterator[Sequence[str]]:
    """The arguments without a leading `--home DIR`; within, that is the home of this process and
    of what it starts."""
    home, rest = _parted(arguments)
    if home is None:
        yield arguments
        return
    before = os.environ.get(HOME_VARIABLE)
    os.environ[HOME_VARIABLE] = os.path.abspath(home)
    try:
        yield rest
    finally:
        if before is None:
            del os.environ[HOME_VARIABLE]
        else:
            os.environ[HOME_VARIABLE] = before


def _parted(arguments: Sequence[str]) -> tuple[str | None, Sequence[str]]:
    """The home, None where none is named, and what follows it."""
    if len(arguments) > 1 and arguments[0] == OPTION and arguments[1]:
        return arguments[1], arguments[2:]
    if arguments and arguments[0].startswith(f"{OPTION}=") and len(arguments[0]) > len(OPTION) + 1:
        return arguments[0].partition("=")[2], arguments[1:]
    return None, arguments
