"""What travels of a program's folder: what git tracks plus what it does not ignore."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import BinaryIO

from trainer_runtime.core.files.unlinked import UnlinkedPaths, unlinked_paths
from trainer_runtime.core.protocol.figures import size_text
from trainmaster.calls.work import spend
from trainmaster.errors.errors import PlanError
from trainmaster.home.paths import Home
from trainmaster.runs.planning.git.isolated import GitError
from trainmaster.runs.planning.git.working_copy import (
    MissingSubmoduleError,
    WorkingCopy,
    working_copy,
)
from trainmaster.transfers.file_set import FileSet, SetFile, file_set

FIELD = "script.path"
_MOST_FILES = 20_000
_LARGEST_POINTER_BYTES = 1024
_BLOCK_BYTES = 1 << 20
_POINTER = b"version https://git-lfs.github.com/spec/"


@dataclass(frozen=True, slots=True)
class CodeFile:
    """`name`: below the folder, with slashes."""

    name: str
    size_bytes: int
    sha256: str
    executable: bool


@dataclass(frozen=True, slots=True)
class CodeFolder:
    """A program's folder as it is now, all of it from the files `there`. `commit` and `dirty` are
    None where git does not know them; `diff`: from the commit; `left`: what stays behind and why,
    in words."""

    there: FileSet
    files: Sequence[CodeFile]
    commit: str | None = None
    dirty: bool | None = None
    diff: str = ""
    left: Sequence[str] = ()

    @property
    def size_bytes(self) -> int:
        return self.there.size_bytes

    @property
    def digest(self) -> str:
        """Of names, contents and permissions."""
        rows = [[file.name, file.sha256, file.executable] for file in self.files]
        return hashlib.sha256(json.dumps(rows).encode()).hexdigest()

    @property
    def listing(self) -> str:
        """`code.json`, by which the host copies them."""
        rows = [[file.name, file.size_bytes, file.sha256, file.executable] for file in self.files]
        document = {"commit": self.commit, "dirty": self.dirty, "files": rows}
        return json.dumps(document, indent=None) + "\n"


def read_code(folder: Path, limit_bytes: float, home: Home) -> CodeFolder:
    """The files of a program's folder with their digests, and what changed since the commit.

    `home`: whose keys stay, whatever name they have here.

    Raises:
        PlanError: `CODE_MISSING`, `CODE_TOO_LARGE`, `CODE_INCOMPLETE` (submodules or LFS pointers).
    """
    return _read(folder, limit_bytes, home, with_changes=True)


def code_digest(folder: Path, limit_bytes: float, home: Home) -> str:
    """The digest alone.

    Raises:
        PlanError: as `read_code`.
    """
    return _read(folder, limit_bytes, home, with_changes=False).digest


def _read(folder: Path, limit_bytes: float, home: Home, *, with_changes: bool) -> CodeFolder:
    if not folder.is_dir():
        raise _missing(folder, "is not a folder" if folder.exists() else "does not exist")
    try:
        with working_copy(os.path.realpath(folder)) as copy:
            there = file_set(folder, home, None if copy is None else copy.names)
            _refuse_large(folder, there, limit_bytes)
            with unlinked_paths() as paths:
                files = [_digested(file, paths) for file in there.files]
            code = CodeFolder(there, files, left=_left(there))
            return code if copy is None or not with_changes else _with_changes(code, copy)
    except OSError as error:
        raise _missing(folder, f"can't be read: {error.strerror}") from error
    except GitError as error:
        raise _missing(folder, f"can't be asked of git: {error}") from error
    except MissingSubmoduleError as error:
        raise PlanError(
            "CODE_INCOMPLETE",
            f"The submodule {error} of {folder} is not checked out.",
            "Run `git submodule update --init` there.",
            field=FIELD,
        ) from None


def _with_changes(code: CodeFolder, copy: WorkingCopy) -> CodeFolder:
    try:
        dirty, diff = copy.changes(code.there)
    except GitError as error:
        left = [*code.left, f"the changes since the commit, which git can't show ({error})"]
        return replace(code, commit=copy.commit, left=left)
    return replace(code, commit=copy.commit, dirty=dirty, diff=diff)


def _left(there: FileSet) -> list[str]:
    secrets = there.secrets
    left = [f"{len(secrets)} files with secrets ({', '.join(secrets[:3])})"] if secrets else []
    return left + [f"Trainmaster's own files in {home}" for home in there.homes]


def _refuse_large(folder: Path, there: FileSet, limit_bytes: float) -> None:
    total, count = there.size_bytes, len(there.files)
    if total <= limit_bytes and count <= _MOST_FILES:
        return
    largest = sorted(there.files, key=lambda file: -file.size_bytes)[:3]
    named = ", ".join(f"{file.name} ({size_text(file.size_bytes)})" for file in largest)
    raise PlanError(
        "CODE_TOO_LARGE",
        f"{folder} has {count:,} files of {size_text(total)} that would travel, more "
        f"than {size_text(limit_bytes)} or {_MOST_FILES:,} files: {named}.",
        "Have git ignore data and outputs, leave data on the host, or raise max_code_mib in "
        "settings.yaml.",
        field=FIELD,
    )


def _digested(file: SetFile, paths: UnlinkedPaths) -> CodeFile:
    with os.fdopen(file.open(paths), "rb") as opened:
        if file.size_bytes <= _LARGEST_POINTER_BYTES and opened.read(64).startswith(_POINTER):
            raise PlanError(
                "CODE_INCOMPLETE",
                f"{file.name} is a pointer of git LFS: its content is not there.",
                "Run `git lfs pull` in the folder.",
                field=FIELD,
            )
        opened.seek(0)
        digest = _sha256(opened, file.size_bytes)
    return CodeFile(file.name, file.size_bytes, digest, file.is_executable)


def _sha256(opened: BinaryIO, size_bytes: int) -> str:
    """Of as much as the file held when it was listed: it may grow for ever."""
    digest, left = hashlib.sha256(), size_bytes
    while block := opened.read(min(left, _BLOCK_BYTES)):
        spend()
        digest.update(block)
        left -= len(block)
    return digest.hexdigest()


def _missing(folder: Path, problem: str) -> PlanError:
    return PlanError(
        "CODE_MISSING",
        f"The program's folder {folder} {problem}.",
        "Name the folder of the program in script.path.",
        field=FIELD,
    )
