"""A program's folder in its repository, submodules included."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path, PurePath

from trainer_runtime.core.files.protected import names_credentials
from trainer_runtime.core.files.regular import read_opened
from trainer_runtime.core.files.unlinked import UnlinkedPaths, unlinked_paths
from trainer_runtime.core.protocol.figures import size_text
from trainmaster.calls.work import spend
from trainmaster.runs.planning.git.git_dir import isolated_dir, read_config
from trainmaster.runs.planning.git.isolated import Git, GitError, isolated_git
from trainmaster.runs.planning.git.repository import Repository, repository_at, repository_place
from trainmaster.transfers.file_set import FileSet, SetFile

_SUBMODULE = "160000"
_DELETED = "D"
_NAMES = (".gitignore", ".gitattributes")
_READ_OR_PASSED_OVER = (stat.S_ISREG, stat.S_ISDIR, stat.S_ISLNK)
_MOST_READ_BYTES = 4 << 20
_MOST_CHECKOUTS = 200
MOST_DIFF_BYTES = 1 << 20
_MOST_FILE_BYTES = 2 << 20
_MOST_BYTES = 32 << 20
_CUT = "\n[cut: the files themselves are in code/]\n"
_CHANGED = "refs/changed"
_HEADER = b"commit refs/changed\ncommitter - <-> 0 +0000\ndata 0\nfrom %s\n"


class MissingSubmoduleError(Exception):
    """A submodule that is not checked out, by its name."""


@dataclass(frozen=True, slots=True)
class WorkingCopy:
    """`names` of the files that are tracked or not ignored, below the folder; `has_untracked`:
    some are not tracked."""

    checkouts: tuple[Checkout, ...]
    names: tuple[str, ...]
    has_untracked: bool

    @property
    def commit(self) -> str | None:
        return self.checkouts[0].commit

    def changes(self, files: FileSet) -> tuple[bool, str]:
        """Whether anything differs from the commit, and the diff of what travels.

        Raises:
            GitError: objects are not there, as in a partial or shared clone.
            OSError: a file was replaced while it was read.
        """
        is_dirty, texts = self.has_untracked, []
        for checkout in self.checkouts:
            commit = checkout.commit
            changes = [] if commit is None else list(checkout.changes(commit))
            is_dirty |= bool(changes) or checkout.expected not in (None, commit)
            if commit is not None and changes:
                texts.append(diff_of(checkout, commit, changes, files))
        return is_dirty, "".join(texts)


@contextmanager
def working_copy(folder: str) -> Iterator[WorkingCopy | None]:
    """What git has of a folder, a real path; None where it is in no repository. It can be asked
    inside the context.

    Raises:
        GitError: the repository can't be read, or git is not there.
        MissingSubmoduleError
    """
    place = repository_place(folder)
    if place is None:
        yield None
        return
    with isolated_git(place) as git:
        repository = repository_at(place, partial(read_config, git))
        git_dir = isolated_dir(git, repository, "repository-0")
        reading = _Reading([Checkout(git, git_dir, repository, folder, "", None)])
        reading.read(reading.checkouts[0])
        yield WorkingCopy(tuple(reading.checkouts), tuple(reading.names), reading.has_untracked)


class _Reading:
    def __init__(self, checkouts: list[Checkout]) -> None:
        self.checkouts = checkouts
        self.names: list[str] = []
        self.has_untracked = False

    def read(self, checkout: Checkout) -> None:
        for tracked in checkout.tracked():
            if tracked.submodule is None:
                self.names.append(checkout.prefix + tracked.name)
            else:
                self._read_submodule(checkout, tracked.name, tracked.submodule)
        others = checkout.untracked()
        self.has_untracked |= bool(others)
        self.names += [checkout.prefix + name for name in others]

    def _read_submodule(self, outer: Checkout, name: str, expected: str) -> None:
        place, prefix = f"{outer.folder}/{name}", f"{outer.prefix}{name}/"
        if not _is_checked_out(place):
            raise MissingSubmoduleError(f"{outer.prefix}{name}")
        if len(self.checkouts) == _MOST_CHECKOUTS:
            raise GitError(f"it has more than {_MOST_CHECKOUTS} submodules")
        git = outer.git
        repository = repository_at(place, partial(read_config, git), outer.repository)
        git_dir = isolated_dir(git, repository, f"repository-{len(self.checkouts)}")
        inner = Checkout(git, git_dir, repository, place, prefix, expected)
        self.checkouts.append(inner)
        self.read(inner)


def _is_checked_out(place: str) -> bool:
    """Whether a folder, and no link to one, has more than its `.git`."""
    try:
        if not stat.S_ISDIR(os.lstat(place).st_mode) or os.path.realpath(place) != place:
            return False
        return any(not name.startswith(".") for name in os.listdir(place))
    except OSError:
        return False


def diff_of(checkout: Checkout, commit: str, changes: Sequence[Change], files: FileSet) -> str:
    """The diff from the commit to the files that travel; cut where it is long.

    Raises:
        GitError: objects are not there, as in a partial or shared clone.
        OSError: a file was replaced while it was read.
    """
    stream = checkout.git.scratch / "changes"
    by_name = {file.name: file for file in files.files}
    with stream.open("wb") as target, unlinked_paths() as paths:
        target.write(_HEADER % commit.encode())
        left = _MOST_BYTES
        for change in changes:
            for piece in _row(checkout, change, by_name, files, paths):
                left -= len(piece)
                target.write(piece)
            if left < 0:
                break
    git, git_dir = checkout.git, checkout.git_dir
    git.run(git_dir, "fast-import", "--quiet", "--force", stdin=stream)
    prefixes = (f"--src-prefix=a/{checkout.prefix}", f"--dst-prefix=b/{checkout.prefix}")
    options = ("-p", "-r", "-M", "--no-ext-diff", "--no-textconv", "--no-color", *prefixes)
    words = ("diff-tree", *options, commit, _CHANGED)
    text = git.run(git_dir, *words, most_bytes=MOST_DIFF_BYTES + 1).decode(errors="replace")
    return text if len(text) <= MOST_DIFF_BYTES else text[:MOST_DIFF_BYTES] + _CUT


def _row(
    checkout: Checkout,
    change: Change,
    by_name: Mapping[str, SetFile],
    files: FileSet,
    paths: UnlinkedPaths,
) -> Iterator[bytes]:
    """A change as `git fast-import` reads it; nothing for what stays behind."""
    name = f"{checkout.prefix}{change.name}"
    path = _quoted(f"{checkout.above}{change.name}")
    if change.is_deleted:
        in_home = any(name.startswith(f"{home}/") for home in files.homes)
        if not names_credentials(PurePath(name)) and not in_home:
            yield b"D %s\n" % path
        return
    file = by_name.get(name)
    if file is None or file.real != f"{files.root}/{name}":
        return
    data = read_opened(file.open(paths), _MOST_FILE_BYTES)
    if len(data) > _MOST_FILE_BYTES:
        data = f"[{file.size_bytes} bytes, too many for a diff]\n".encode()
    mode = b"100755" if file.is_executable else b"100644"
    yield b"M %s inline %s\ndata %d\n%s\n" % (mode, path, len(data), data)


def _quoted(path: str) -> bytes:
    for letter, quoted in (("\\", "\\\\"), ('"', '\\"'), ("\n", "\\n")):
        path = path.replace(letter, quoted)
    return b'"%s"' % path.encode(errors="surrogateescape")


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
    if stat.S_ISREG(status.st_mode) and status.st_size > _MOST_READ_BYTES:
        raise GitError(f"{path} is larger than {size_text(_MOST_READ_BYTES)}")


def _folders(worktree: Path, folder: Path) -> Iterator[str]:
    for above in folder.parents:
        if above.is_relative_to(worktree):
            yield str(above)
    for place, names, _ in os.walk(folder):
        with suppress(ValueError):
            names.remove(".git")
        yield place
