"""The home is its user's alone, as `~/.ssh` is: created 0700, and refused where others may write.

The rules are those of sshd's StrictModes. Nobody but root and the user may own or write the home,
a folder above it or what lies in it; folders above it may be sticky, such as `/tmp`; a group that
has no other member counts as its user. What others may only read is tightened.
"""

from __future__ import annotations

import errno
import os
import pwd
import shlex
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path

from trainer_runtime.core.files.private import others_write
from trainmaster.errors.errors import StorageError
from trainmaster.home.paths import HOME_VARIABLE, Home, find_home
from trainmaster.home.user_paths import user_path
from trainmaster.store.disk_space import REMEDIES, is_lack_of_room, lack_of_room

_FOLDER = 0o700
_DOWNLOADS = "downloads"
_OTHERS = 0o077
_OTHERS_ENTER = 0o011


def open_home(environment: Mapping[str, str]) -> Home:
    """The home that `environment` names: created where it is missing, private in any case.

    Raises:
        StorageError: `HOME_NOT_PRIVATE`; `ROOT_NOT_WRITABLE`, `DISK_FULL` or `NO_INODES`, it can't
            be created.
        UsageError: `BAD_ARGUMENT`, no folder can have the path that is named.
    """
    if named := environment.get(HOME_VARIABLE):
        user_path(named, HOME_VARIABLE)
    home = find_home(environment)
    try:
        _check_above(home.root)
        _create(home.root)
        _check_home(home.root)
    except OSError as error:
        raise _unusable(home.root, error) from error
    return home


def find_readable_home(environment: Mapping[str, str]) -> Home:
    """As `open_home`; also a home that can't be created where its disk takes no more, which is read
    as empty.

    Raises: as `open_home`.
    """
    try:
        return open_home(environment)
    except StorageError as error:
        home, cause = find_home(environment), error.__cause__
        if home.root.exists() or not (isinstance(cause, OSError) and is_lack_of_room(cause)):
            raise
        return home


def _unusable(root: Path, error: OSError) -> StorageError:
    code, reason = lack_of_room(root, error)
    remedy = REMEDIES[code]
    if error.errno in (errno.ELOOP, errno.ENOTDIR, errno.EEXIST):
        remedy = f"Remove what stands in the place of a folder (`ls -ld {shlex.quote(str(root))}`)"
    if error.errno == errno.EEXIST:
        reason = reason or _dead_link(root)
    reason = reason or error.strerror or str(error)
    where = f"The home {root} can't be used: {reason}."
    return StorageError(code, where, f"{remedy}, or point {HOME_VARIABLE} elsewhere.")


def _dead_link(root: Path) -> str | None:
    """What is said of a link that leads nowhere: the system's own words are that it exists."""
    links = [place for place in (root, *root.parents) if place.is_symlink() and not place.exists()]
    return f"{links[0]} is a link that leads nowhere" if links else None


def _check_above(root: Path) -> None:
    """Refuse a home that another user could replace, by its path or by where links lead."""
    for folder in {*root.parents, *Path(os.path.realpath(root)).parents}:
        try:
            status = folder.stat()
        except FileNotFoundError:
            continue  # it is created
        if status.st_uid not in (0, os.geteuid()):
            raise _refused(root, f"{folder} above it belongs to {_user(status.st_uid)}", None)
        if others_write(status) and not status.st_mode & stat.S_ISVTX:
            fix = f"chmod go-w {shlex.quote(str(folder))}"
            raise _refused(root, f"other users can write to {folder} above it", fix)


def _create(root: Path) -> None:
    missing = [place for place in (root, *root.parents) if not place.exists()]
    for place in reversed(missing):
        place.mkdir(_FOLDER, exist_ok=True)


def _check_home(root: Path) -> None:
    status = root.stat()
    if status.st_uid != os.geteuid():
        raise _refused(root, f"it belongs to {_user(status.st_uid)}", None)
    for place, entry_status in _entries(root):
        if entry_status.st_uid != os.geteuid():
            raise _refused(root, f"{place} belongs to {_user(entry_status.st_uid)}", None)
        is_within = place.parent == root
        if others_write(entry_status) and (status.st_mode & _OTHERS_ENTER or not is_within):
            raise _writable(root, place)
        if is_within:
            _tighten(place, entry_status)
    if others_write(status):
        raise _writable(root, root)
    _tighten(root, status)


def _entries(root: Path) -> Iterator[tuple[Path, os.stat_result]]:
    """What lies in the home, and where links in it lead; what is downloaded may be shared."""
    for entry in os.scandir(root):
        try:
            yield Path(entry.path), entry.stat(follow_symlinks=False)
            if entry.is_symlink() and entry.name != _DOWNLOADS:
                yield Path(os.path.realpath(entry.path)), entry.stat()
        except FileNotFoundError:
            continue  # a temporary file, or a link that leads nowhere


def _tighten(place: Path, status: os.stat_result) -> None:
    """Take away what others may read; links themselves have no permissions. What is mounted
    read-only stays as it is: nothing new gets into it."""
    if status.st_mode & _OTHERS and not stat.S_ISLNK(status.st_mode):
        try:
            place.chmod(stat.S_IMODE(status.st_mode) & ~_OTHERS)
        except OSError as error:
            if error.errno != errno.EROFS:
                raise


def _writable(root: Path, place: Path) -> StorageError:
    what = "it" if place == root else str(place)
    return _refused(
        root,
        f"other users can write {what}",
        f"Check that its settings are yours, then run: chmod -R go-rwx {shlex.quote(str(root))}",
    )


def _refused(root: Path, reason: str, fix: str | None) -> StorageError:
    elsewhere = f"run as the user who owns it, or point {HOME_VARIABLE} at a folder of your own."
    return StorageError(
        "HOME_NOT_PRIVATE",
        f"The home {root} is not used: {reason}.",
        f"{fix}; or {elsewhere}" if fix else elsewhere[0].upper() + elsewhere[1:],
    )


def _user(uid: int) -> str:
    try:
        return f"the user {pwd.getpwuid(uid).pw_name}"
    except KeyError:
        return f"the user id {uid}"
