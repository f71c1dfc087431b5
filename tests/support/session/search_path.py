"""The search path of the tests: this Python itself in place of pyenv's shims.

A shim runs some fifteen processes of bash for each Python that it starts, and a preparation asks
six names of Python: a fifth of the processor time of all that prepares environments.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path


def without_shims(path: str) -> str:
    """The search path with the folder of this Python's own programs where shims stood."""
    own = str(Path(sys.base_prefix, "bin"))
    folders = [own if _has_shims(folder) else folder for folder in path.split(os.pathsep)]
    return os.pathsep.join(dict.fromkeys(folders))


def _has_shims(folder: str) -> bool:
    return Path(folder).name == "shims" and "pyenv" in folder
