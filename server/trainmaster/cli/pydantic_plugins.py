"""Pydantic without its plugins, for commands.

To find them, Pydantic reads the metadata of every package installed, by `importlib.metadata` and
with it the whole of `email`: 20 ms of `trainmaster status`. None is meant for a command, and none
may change an answer.
"""

from __future__ import annotations

import sys
from types import ModuleType

_LOADER = "pydantic.plugin._loader"


def leave_out_pydantic_plugins() -> None:
    """Stand in for the module that finds plugins, unless Pydantic has already imported it."""
    loader = ModuleType(_LOADER)
    vars(loader)["get_plugins"] = tuple
    sys.modules.setdefault(_LOADER, loader)
