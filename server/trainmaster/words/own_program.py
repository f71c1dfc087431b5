"""How this program is called from elsewhere."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path

from trainmaster.words.paths import HOME_VARIABLE, find_home

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


def command_line(environment: Mapping[str, str], *, in_this_shell: bool = False) -> tuple[str, ...]:
    """The same with the home of `environment`, unless that is the default one.

    `in_this_shell`: by its name alone where PATH leads to this very program.
    """
    words = own_program()
    found = shutil.which(_NAME) if in_this_shell and len(words) == 1 else None
    if found is not None and os.path.abspath(found) == words[0]:
        words = (_NAME,)
    if not environment.get(HOME_VARIABLE):
        return words
    home = find_home(environment).root
    return words if home == find_home({}).root else (*words, "--home", str(home))
