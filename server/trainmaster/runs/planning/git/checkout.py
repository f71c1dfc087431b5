"""One repository's files as they lie below a folder, and what git says of them."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from trainer_runtime.core.protocol.figures import size_text
from trainmaster.calls.work import spend
from trainmaster.runs.planning.git.isolated import Git, GitError
from trainmaster.runs.planning.git.repository import Repository

_SUBMODULE = "160000"
_DELETED = "D"
_NAMES = (".gitignore", ".gitattributes")
_READ_OR_PASSED_OVER = (stat.S_ISREG, stat.S_ISDIR, stat.S_ISLNK)
_MOST_BYTES = 4 << 20


@dataclass(frozen=True, slots=True)
class Tracked:
    """`name`: below the checkout's folder; `submodule`: the commit that is expected there."""

    name: str
    submodule: str | None


@dataclass(frozen=True, slots=True)
class Change:
    """A tracked file that differs from the commit. `name`: below the checkout's folder."""

    name: str
    is_deleted: bool


@dataclass(frozen=True, slots=True)
class Checkout:
    """`git_dir`: ours; `folder`: the part that counts, in the repository's worktree; `prefix`: of
    its names below the program's folder, with a slash at the end; `expected`: the commit that the
    outer repository records."""

    git: Git
    git_dir: Path
    repository: Repository
    folder: str
    prefix: str
    expected: str | None

    @property
    def commit(self) -> str | None:
        return self.repository.head()

    @property
    def above(self) -> str:
        """Of the repository's names, what comes before those below `folder`."""
        inside = os.path.relpath(self.folder, self.repository.worktree)
        return "" if inside == "." else f"{inside}/"

    def tracked(self) -> Iterator[Tracked]:
        """Raises: GitError: the index is damaged."""
        for line in self._rows("ls-files", "-s", "-z"):
            meta, _, name = line.partition("\t")
            mode, commit, *_ = meta.split(" ")
            yield Tracked(name, commit if mode == _SUBMODULE else None)

    def untracked(self) -> list[str]:
        """What is neither tracked nor ignored; another repository inside ends with a slash.

        Raises:
            GitError
        """
        return self._rows("ls-files", "-z", "-o", "--exclude-standard")

    def changes(self, commit: str) -> Iterator[Change]:
        """Raises: GitError: objects are not there."""
        options = ("--raw", "-z", "--no-renames", "--no-ext-diff", "--no-textconv", "--relative")
        rows = iter(self._rows("diff", *options, "--ignore-submodules=all", commit, "--", "."))
        for meta, name in zip(rows, rows, strict=False):
            yield Change(name, meta.rpartition(" ")[2].startswith(_DELETED))

    def _rows(self, *words: str) -> list[str]:
        worktree, folder = Path(self.repository.worktree), Path(self.folder)
        text = self.git.run(
            self.git_dir,
            *words,
            worktree=worktree,
            folder=folder,
            while_slow=partial(refuse_endless_rules, worktree, folder),
        )
        return [row for row in os.fsdecode(text).split("\0") if row]


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
