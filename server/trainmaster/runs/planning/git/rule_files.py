"""Finds a file of git's rules that git would wait for, a pipe or a device, or keep in memory."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from trainer_runtime.core.protocol.figures import size_text
from trainmaster.calls.work import spend
from trainmaster.runs.planning.git.isolated import GitError

_NAMES = (".gitignore", ".gitattributes")
_READ_OR_PASSED_OVER = (stat.S_ISREG, stat.S_ISDIR, stat.S_ISLNK)
_MOST_BYTES = 4 << 20


def refuse_endless_rules(worktree: Path, folder: Path) -> None:
    """Inspect above and below `folder` the rules that can't be read to an end.

    Raises:
        GitError: there are some.
        StateError: `READ_TOO_LONG`, the call has ended.
    """
    for place in _folders(worktree, folder):
        spend()
        for name in _NAMES:
            with suppress(OSError):  # none there
                _refuse(f"{place}/{name}", os.lstat(f"{place}/{name}"))


def _refuse(path: str, status: os.stat_result) -> None:
    if not any(is_of_kind(status.st_mode) for is_of_kind in _READ_OR_PASSED_OVER):
        raise GitError(f"{path} is not a regular file")
    if stat.S_ISREG(status.st_mode) and status.st_size > _MOST_BYTES:
        raise GitError(f"{path} is larger than {size_text(_MOST_BYTES)}")


def _folders(worktree: Path, folder: Path) -> Iterator[str]:
    for above in folder.parents:
        if above.is_relative_to(worktree):
            yield str(above)
    for place, names, _ in os.walk(folder):
        with suppress(ValueError):
            names.remove(".git")
        yield place
