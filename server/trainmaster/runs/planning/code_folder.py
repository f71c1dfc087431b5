"""What travels of a program's folder: what git tracks plus what it does not ignore."""

from __future__ import annotations

import hashlib
import json
import os
import re
import stat
import subprocess
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path, PurePath

from trainer_runtime.core.files.protected import is_home, is_protected, names_credentials
from trainer_runtime.core.records import dataclass
from trainmaster.words.errors import PlanError

FIELD = "script.path"
_CACHES = frozenset(
    {
        *(".git", "__pycache__", ".venv", "venv", "node_modules", ".tox", ".ipynb_checkpoints"),
        *(".mypy_cache", ".ruff_cache", ".pytest_cache", ".cache", ".eggs", "wandb"),
    }
)
_MOST_FILES = 20_000
_MOST_WALKED = 100_000  # of a whole disk that is named by mistake
_LARGEST_DIFF_BYTES = 1 << 20
_LARGEST_POINTER_BYTES = 1024
_POINTER = b"version https://git-lfs.github.com/spec/"
_SUBMODULE = "160000"
_GIT_WITHIN_S = 60.0
_COMMIT = re.compile(r"[0-9a-f]{7,64}")
_FILTER = re.compile(r"^filter\.(.+)\.(?:clean|process|required|smudge)$")


@dataclass(frozen=True, slots=True)
class CodeFile:
    """`name`: below the folder, with slashes."""

    name: str
    size_bytes: int
    sha256: str
    executable: bool


@dataclass(frozen=True, slots=True)
class CodeFolder:
    """A program's folder as it is now. `commit` and `dirty` are None without git; `diff`: from the
    commit; `left`: what stays behind and why, in words."""

    files: Sequence[CodeFile]
    commit: str | None
    dirty: bool | None
    diff: str
    left: Sequence[str]

    @property
    def size_bytes(self) -> int:
        return sum(file.size_bytes for file in self.files)

    @property
    def digest(self) -> str:
        """Of names, contents and permissions."""
        rows = [[file.name, file.sha256, file.executable] for file in self.files]
        return hashlib.sha256(json.dumps(rows).encode()).hexdigest()

    @property
    def listing(self) -> str:
        """`code.json`, by which the host copies them."""
        rows = [[one.name, one.size_bytes, one.sha256, one.executable] for one in self.files]
        document = {"commit": self.commit, "dirty": self.dirty, "files": rows}
        return json.dumps(document, indent=None) + "\n"


def read_code(folder: Path, limit_bytes: float) -> CodeFolder:
    """The files of a program's folder with their digests.

    Raises:
        PlanError: `CODE_MISSING`, `CODE_TOO_LARGE`, `CODE_INCOMPLETE` (submodules or LFS pointers).
    """
    if not folder.is_dir():
        raise _missing(folder, "is not a folder" if folder.exists() else "does not exist")
    git = _Git(folder) if _is_in_repository(folder) else None
    try:
        named = list(git.files() if git is not None else islice(_walk(folder), _MOST_WALKED))
        found, secrets = regular_files(folder, named)
        _refuse_large(folder, found, limit_bytes)
        files = [_read(folder / name, name) for name in found]
    except OSError as error:
        raise _missing(folder, f"can't be read: {error.strerror}") from error
    left = [f"{len(secrets)} files with secrets ({', '.join(secrets[:3])})"] if secrets else []
    left += [f"Trainmaster's own files in {home}" for home in sorted(_homes(folder, named))]
    if git is None:
        return CodeFolder(files, None, None, "", left)
    commit, diff = git.commit(), git.diff()
    return CodeFolder(files, commit, git.is_dirty(), diff, left)


def regular_files(folder: Path, named: Iterable[str] | None = None) -> tuple[list[str], list[str]]:
    """The regular files that may travel of those that are `named`, else of all but caches; and
    those with secrets. Links out of the folder, homes of Trainmaster and all else stay.

    Raises:
        OSError: the folder can't be read.
    """
    names = set(islice(_walk(folder), _MOST_WALKED) if named is None else named)
    homes = _homes(folder, names)
    return _regular(folder, sorted(name for name in names if homes.isdisjoint(_folders(name))))


class _Git:
    """Asks git about a folder; nothing that the repository configures is run."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._options: list[str] = []
        for line in self._ask("config", "--name-only", "--get-regexp", r"^filter\.", codes=(0, 1)):
            named = _FILTER.match(line)
            if named is not None:
                name = named.group(1)
                self._options += ["-c", f"filter.{name}.clean=", "-c", f"filter.{name}.process="]
                self._options += ["-c", f"filter.{name}.required=false"]

    def files(self) -> list[str]:
        """Raises: PlanError: `CODE_INCOMPLETE`, a submodule is not checked out."""
        for line in self._ask("ls-files", "-s", "-z", separator="\0"):
            meta, _, name = line.partition("\t")
            if meta.startswith(_SUBMODULE) and not any(Path(self._folder, name).glob("[!.]*")):
                raise PlanError(
                    "CODE_INCOMPLETE",
                    f"The submodule {name} of {self._folder} is not checked out.",
                    "Run `git submodule update --init` there.",
                    field=FIELD,
                )
        tracked = self._ask("ls-files", "-z", "--cached", "--recurse-submodules", separator="\0")
        others = self._ask("ls-files", "-z", "-o", "--exclude-standard", separator="\0")
        return [*tracked, *others]

    def commit(self) -> str | None:
        found = self._ask("rev-parse", "--verify", "-q", "HEAD", codes=(0, 1, 128))
        return found[0] if found and _COMMIT.fullmatch(found[0]) else None

    def is_dirty(self) -> bool:
        return bool(self._ask("status", "--porcelain", "-z", "--", ".", separator="\0"))

    def diff(self) -> str:
        """From the commit to what is there, of tracked files; cut where it is long."""
        if self.commit() is None:
            return ""
        words = ("diff", "--no-ext-diff", "--no-textconv", "--no-color", "HEAD", "--", ".")
        text = self._run(words, (0,)).decode(errors="replace")
        if len(text) <= _LARGEST_DIFF_BYTES:
            return text
        return text[:_LARGEST_DIFF_BYTES] + "\n[cut: the files themselves are in code/]\n"

    def _ask(self, *words: str, codes: tuple[int, ...] = (0,), separator: str = "\n") -> list[str]:
        text = os.fsdecode(self._run(words, codes))
        return [part for part in text.split(separator) if part]

    def _run(self, words: Sequence[str], codes: tuple[int, ...]) -> bytes:
        safe = ["-c", "core.fsmonitor=false", "-c", "core.hooksPath=/dev/null", *self._options]
        try:
            done = subprocess.run(
                ["git", "-C", str(self._folder), *safe, *words],
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=_GIT_WITHIN_S,
                check=False,
                env={**os.environ, "GIT_OPTIONAL_LOCKS": "0", "LC_ALL": "C"},
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise _missing(self._folder, f"can't be asked of git: {error}") from error
        if done.returncode not in codes:
            said = done.stderr.decode(errors="replace").strip().splitlines()[:1]
            raise _missing(self._folder, f"can't be asked of git: {' '.join(said)}")
        return done.stdout


def _is_in_repository(folder: Path) -> bool:
    return any((place / ".git").exists() for place in (folder.resolve(), *folder.resolve().parents))


def _walk(folder: Path) -> Iterator[str]:
    for parent, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if name not in _CACHES]
        for name in names:
            if not name.endswith((".pyc", ".pyo")):
                yield os.path.relpath(os.path.join(parent, name), folder)


def _homes(folder: Path, names: Iterable[str]) -> set[str]:
    """The folders below that are homes of Trainmaster, whose files change all the time."""
    return {inner for inner in set().union(*map(_folders, names)) if is_home(folder / inner)}


def _folders(name: str) -> set[str]:
    return {str(parent) for parent in PurePath(name).parents} - {"."}


def _regular(folder: Path, names: Sequence[str]) -> tuple[list[str], list[str]]:
    found, secrets = [], []
    for name in names:
        path = folder / name
        try:
            status = path.lstat()
        except FileNotFoundError:
            continue  # tracked, and removed since
        if stat.S_ISLNK(status.st_mode) and _leads_within(path, folder):
            status = path.stat()
        if not stat.S_ISREG(status.st_mode):
            continue
        if names_credentials(PurePath(name)) or is_protected(path):
            secrets.append(name)
        else:
            found.append(name)
    return found, secrets


def _leads_within(path: Path, folder: Path) -> bool:
    return path.exists() and path.resolve().is_relative_to(folder.resolve())


def _refuse_large(folder: Path, names: Sequence[str], limit_bytes: float) -> None:
    sizes = {name: (folder / name).stat().st_size for name in names}
    total = sum(sizes.values())
    if total <= limit_bytes and len(names) <= _MOST_FILES:
        return
    largest = sorted(sizes, key=lambda name: -sizes[name])[:3]
    named = ", ".join(f"{name} ({sizes[name] / 2**20:,.1f} MiB)" for name in largest)
    raise PlanError(
        "CODE_TOO_LARGE",
        f"{folder} has {len(names):,} files of {total / 2**20:,.1f} MiB that would travel, more "
        f"than {limit_bytes / 2**20:,.0f} MiB or {_MOST_FILES:,} files: {named}.",
        "Have git ignore data and outputs, leave data on the host, or raise max_code_mib in "
        "settings.yaml.",
        field=FIELD,
    )


def _read(path: Path, name: str) -> CodeFile:
    with path.open("rb") as file:
        status = os.fstat(file.fileno())
        if status.st_size <= _LARGEST_POINTER_BYTES and file.read(64).startswith(_POINTER):
            raise PlanError(
                "CODE_INCOMPLETE",
                f"{name} is a pointer of git LFS: its content is not there.",
                "Run `git lfs pull` in the folder.",
                field=FIELD,
            )
        file.seek(0)
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    executable = bool(status.st_mode & stat.S_IXUSR)
    return CodeFile(PurePath(name).as_posix(), status.st_size, digest, executable)


def _missing(folder: Path, problem: str) -> PlanError:
    return PlanError(
        "CODE_MISSING",
        f"The program's folder {folder} {problem}.",
        "Name the folder of the program in script.path.",
        field=FIELD,
    )
