"""Reads and replaces a file of another program below a folder, through no link."""

from __future__ import annotations

import errno
import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from trainer_runtime.core.files.private import share
from trainer_runtime.core.files.regular import READING, read_opened

_LARGEST_BYTES = 64 << 20
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_PERMISSIONS = 0o7777


class ThroughLinkError(OSError):
    """A folder or file below the root is a link."""


class ChangedError(OSError):
    """Somebody wrote the file meanwhile."""


@dataclass(frozen=True, slots=True)
class PlacedFile:
    """`parts`: its folders below `root`, and its name. Links are followed up to the root alone."""

    root: Path
    parts: tuple[str, ...]

    @classmethod
    def below(cls, root: Path, relative: str) -> PlacedFile:
        return cls(root, Path(relative).parts)

    @property
    def path(self) -> Path:
        return self.root.joinpath(*self.parts)

    def read(self) -> bytes | None:
        """The whole file; None where there is none.

        Raises:
            OSError: it can't be read, is not a regular file, too large, or behind a link.
        """
        try:
            with self._folder(makes=False) as folder, _no_link(folder, self.path):
                descriptor = os.open(self.parts[-1], READING | os.O_NOFOLLOW, dir_fd=folder)
        except FileNotFoundError:
            return None
        data = read_opened(descriptor, _LARGEST_BYTES)
        if len(data) > _LARGEST_BYTES:
            raise OSError(errno.EFBIG, "it is larger than such a file can be", str(self.path))
        return data

    def replace(self, before: bytes | None, data: bytes, *, is_private: bool) -> None:
        """Write `data` in place of `before`, wholly or not at all.

        It keeps its permissions, owner and group. A new one is its owner's alone, or `is_private`
        is false and the user's umask decides.

        Raises:
            ChangedError: the file is not what `before` has any more.
            OSError: it can't be written, or is behind a link.
        """
        with self._folder(makes=True) as folder:
            name, temporary = self.parts[-1], f".{self.parts[-1]}.{secrets.token_hex(4)}"
            descriptor = os.open(temporary, _NEW, 0o600, dir_fd=folder)
            try:
                with os.fdopen(descriptor, "wb") as file:
                    file.write(data)
                    _take_permissions(file.fileno(), name, folder, is_private=is_private)
                    file.flush()
                    os.fsync(file.fileno())
                if self.read() != before:
                    raise ChangedError(errno.EAGAIN, "it was changed meanwhile", str(self.path))
                os.replace(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
            except OSError:
                with suppress(OSError):
                    os.unlink(temporary, dir_fd=folder)
                raise
            os.fsync(folder)

    @contextmanager
    def _folder(self, *, makes: bool) -> Iterator[int]:
        """A descriptor of its folder, opened from the root on, part by part."""
        descriptor = os.open(self.root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            path = self.root
            for part in self.parts[:-1]:
                path /= part
                with _no_link(descriptor, path):
                    inner = _opened_folder(part, descriptor, makes=makes)
                os.close(descriptor)
                descriptor = inner
            yield descriptor
        finally:
            os.close(descriptor)


def _opened_folder(name: str, parent: int, *, makes: bool) -> int:
    try:
        return os.open(name, _FOLDER, dir_fd=parent)
    except FileNotFoundError:
        if not makes:
            raise
    with suppress(FileExistsError):
        os.mkdir(name, dir_fd=parent)
        made = os.open(name, _FOLDER, dir_fd=parent)
        share(made)
        return made
    return os.open(name, _FOLDER, dir_fd=parent)


def _take_permissions(descriptor: int, name: str, folder: int, *, is_private: bool) -> None:
    """Those of the file that is there, or those of a new one."""
    try:
        status = os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        if not is_private:
            os.fchmod(descriptor, 0o644)
            share(descriptor)
        return
    if not stat.S_ISREG(status.st_mode):
        return
    own = os.fstat(descriptor)
    if (own.st_uid, own.st_gid) != (status.st_uid, status.st_gid):
        os.fchown(descriptor, status.st_uid, status.st_gid)
    os.fchmod(descriptor, status.st_mode & _PERMISSIONS)  # after the owner, which clears bits


@contextmanager
def _no_link(folder: int, path: Path) -> Iterator[None]:
    """Raises:
    ThroughLinkError: what could not be opened is a link.
    """
    try:
        yield
    except OSError as error:
        if _is_link(folder, path.name):
            raise ThroughLinkError(errno.ELOOP, "it is a link", str(path)) from None
        raise type(error)(error.errno, error.strerror, str(path)) from None


def _is_link(folder: int, name: str) -> bool:
    try:
        return stat.S_ISLNK(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode)
    except OSError:
        return False
