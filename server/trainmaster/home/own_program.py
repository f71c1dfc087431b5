"""How this program is called from elsewhere."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path

from trainmaster.home.paths import HOME_VARIABLE, find_home

_NAME = "trainmaster"
# Where uv keeps what `uvx` runs: it may be gone tomorrow.
_PASSING = "/uv/archive-v"


def own_program() -> tuple[str, ...]:
    """The words that begin a command line of this program, with nothing assumed: agents and timers
    have another PATH."""
    called = sys.argv[0] if sys.argv else ""
    program = shutil.which(called) if Path(called).name == _NAME else None
    if program is None:
        return (sys.executable, "-m", _NAME)
    if _PASSING in os.path.realpath(program):
        return ("uvx", _NAME)
    return (os.path.abspath(program),)


def command_line(
    environment: Mapping[str, str], *, shell: Mapping[str, str] | None = None
) -> tuple[str, ...]:
    """The same with the home of `environment`, unless `shell` has that one of itself.

    `shell`: the variables of the shell that the line is for, where PATH may lead to this very
    program; None for one of which nothing is known, which has the default home.
    """
    words = own_program()
    program = shutil.which(_NAME) if shell is not None and len(words) == 1 else None
    if program is not None and os.path.abspath(program) == words[0]:
        words = (_NAME,)
    if not environment.get(HOME_VARIABLE):
        return words
    home = find_home(environment).root
    return words if home == find_home(shell or {}).root else (*words, "--home", str(home))
