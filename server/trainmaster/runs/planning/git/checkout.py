"""One repository's files as they lie below a folder, and what git says of them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from trainmaster.runs.planning.git.isolated import Git
from trainmaster.runs.planning.git.repository import Repository
from trainmaster.runs.planning.git.rule_files import refuse_endless_rules

_SUBMODULE = "160000"
_DELETED = "D"


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
