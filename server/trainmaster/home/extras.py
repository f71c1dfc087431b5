"""How an extra of this package is installed."""

from __future__ import annotations

import importlib.metadata
import shlex
import sys


def installing(extra: str) -> str:
    """The command for what an extra names, into this program's environment.

    By the packages themselves: a checkout's name may be somebody else's on the package index.
    """
    words = [line.partition(";") for line in importlib.metadata.requires("trainmaster") or ()]
    packages = [
        name.strip()
        for name, _, when in words
        if when.strip().endswith((f'"{extra}"', f"'{extra}'"))
    ]
    return f"`{shlex.join([sys.executable, '-m', 'pip', 'install', *packages])}`"
