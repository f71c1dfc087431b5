"""Damaged and locked databases of the home.

`metrics.db` is derived: where it is damaged it is renamed, and rebuilt from the mirror. A
process that finds damage leaves a mark beside it; the next one to open it sets it aside.
"""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

from trainer_runtime.core.files.durable import lock_within

_DAMAGE = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB})
_BUSY = frozenset({sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED})
_LOCK_S = 30.0
_SUFFIXES = ("", "-wal", "-shm")
_LOCKS = Path("/proc/locks")


@contextmanager
def readable_damage() -> Iterator[None]:
    """Raise `sqlite3.DatabaseError` where SQLite's message quotes a damaged name, which Python's
    module can't decode."""
    try:
        yield
    except UnicodeDecodeError as error:
        damage = sqlite3.DatabaseError("malformed database schema")
        damage.sqlite_errorcode = sqlite3.SQLITE_CORRUPT
        raise damage from error


def is_damage(error: BaseException) -> bool:
    """Whether SQLite reports that a file is damaged, or no database."""
    if not isinstance(error, sqlite3.DatabaseError):
        return False
    code = getattr(error, "sqlite_errorcode", None)
    return code is not None and code & 0xFF in _DAMAGE


def is_lock(error: BaseException) -> bool:
    """Whether SQLite gave up waiting for another process."""
    code = getattr(error, "sqlite_errorcode", None)
    return isinstance(error, sqlite3.Error) and code is not None and code & 0xFF in _BUSY


def mark_damaged(path: Path) -> None:
    """Have the next one who opens the database check it."""
    with suppress(OSError):
        os.close(os.open(_mark(path), os.O_WRONLY | os.O_CREAT, 0o600))


def is_marked(path: Path) -> bool:
    return _mark(path).exists()


def set_aside(path: Path) -> None:
    """Rename a damaged database to `<name>.damaged.<time>`, with its log; one that is whole stays.

    Safe against others who find the same damage.

    Raises:
        OSError: it can't be renamed.
    """
    lock = lock_within(path.with_name(f"{path.name}.lock"), _LOCK_S)
    if lock is None:
        return
    try:
        if not _is_whole(path):
            name = f"{path.name}.damaged.{int(time.time())}"
            for suffix in _SUFFIXES:
                with suppress(FileNotFoundError):
                    os.replace(f"{path}{suffix}", path.with_name(f"{name}{suffix}"))
        _mark(path).unlink(missing_ok=True)
    finally:
        os.close(lock)


def holder(path: Path) -> int | None:
    """The process that holds the database's write lock, as far as the kernel says."""
    inodes = set()
    for suffix in _SUFFIXES:
        with suppress(OSError):
            inodes.add(os.stat(f"{path}{suffix}").st_ino)
    with suppress(OSError, ValueError, IndexError):
        for line in _LOCKS.read_text().splitlines():
            words = line.split()
            is_ours = int(words[5].rpartition(":")[2]) in inodes
            if is_ours and words[3] == "WRITE" and int(words[4]) != os.getpid():
                return int(words[4])
    return None


def _is_whole(path: Path) -> bool:
    try:
        connection = sqlite3.connect(f"{path.absolute().as_uri()}?mode=rw", uri=True)
        with closing(connection) as opened, readable_damage():
            return bool(opened.execute("PRAGMA quick_check(1)").fetchone() == ("ok",))
    except sqlite3.Error as error:
        return not is_damage(error)


def _mark(path: Path) -> Path:
    return path.with_name(f"{path.name}.damaged")
