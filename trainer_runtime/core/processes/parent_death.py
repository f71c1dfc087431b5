"""What becomes of a process when those it came from end. Where the kernel can't, nothing does."""

from __future__ import annotations

import signal
from contextlib import suppress
from pathlib import Path

_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36


def die_with_parent() -> None:
    """From now on this process is killed as soon as its parent ends."""
    _ask(_PR_SET_PDEATHSIG, signal.SIGKILL)


def adopt_orphans() -> None:
    """What this process's children leave behind becomes its own child."""
    _ask(_PR_SET_CHILD_SUBREAPER, 1)


def parent_of(pid: int) -> int | None:
    """The pid of a process's parent; None once it is gone."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except OSError:
        return None
    # The command's name stands in parentheses and may hold anything, parentheses included.
    return int(text[text.rfind(")") + 2 :].split()[1])


def descends_from(pid: int, ancestor: int) -> bool:
    """Whether a process was started by another one, however many generations on."""
    parent = parent_of(pid)
    while parent and parent != ancestor:
        parent = parent_of(parent)
    return parent == ancestor


def _ask(option: int, value: int) -> None:
    with suppress(ImportError, OSError, AttributeError):
        import ctypes

        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)
