"""Files for their owner alone, and the user's own umask for what is written for the user.

A process that calls `make_private` creates folders 0700 and files 0600, whatever the umask it was
started with, and so do the processes that it starts. That umask stays known: a trainer runs with
it, and what a user fetches or draws gets the permissions that they expect.
"""

from __future__ import annotations

import grp
import os
import pwd
import stat
from collections.abc import Mapping
from pathlib import Path

UMASK_VARIABLE = "TRAINMASTER_UMASK"
_PRIVATE = 0o077
_OTHERS_WRITE = 0o022
_UNCHANGED = -1  # as for `subprocess.Popen(umask=…)`


def make_private() -> None:
    """Create files for their owner alone from now on; idempotent."""
    umask = os.umask(_PRIVATE)
    os.environ.setdefault(UMASK_VARIABLE, f"{umask:04o}")


def users_umask() -> int:
    """The umask before `make_private`; -1, which leaves it unchanged, where nobody called that."""
    try:
        return int(os.environ[UMASK_VARIABLE], 8) & 0o777
    except (KeyError, ValueError):
        return _UNCHANGED


def restore_umask() -> None:
    """Undo `make_private`, also that of a process above: what follows is written for the user."""
    umask = users_umask()
    os.environ.pop(UMASK_VARIABLE, None)
    if umask != _UNCHANGED:
        os.umask(umask)


def for_the_user(environment: Mapping[str, str]) -> dict[str, str]:
    """The environment of a process that is started with `umask=users_umask()`."""
    return {name: value for name, value in environment.items() if name != UMASK_VARIABLE}


def share(place: Path | int) -> None:
    """Give a file or folder that was just created the permissions of the user's umask.

    `place`: an open descriptor, or a path in a folder that is the user's alone or was chosen by
    them; a link is left alone.
    """
    umask = users_umask()
    if umask == _UNCHANGED or (isinstance(place, Path) and place.is_symlink()):
        return
    status = os.stat(place)
    all_permissions = 0o777 if status.st_mode & 0o170000 == 0o040000 else 0o666
    os.chmod(place, all_permissions & ~umask)


def others_write(status: os.stat_result) -> bool:
    """Whether users other than the owner may write a file or folder; a group that has no other
    member counts as its owner."""
    if stat.S_ISLNK(status.st_mode):
        return False
    writing = status.st_mode & _OTHERS_WRITE
    return bool(writing) and not (writing == stat.S_IWGRP and _is_own_group(status))


def _is_own_group(status: os.stat_result) -> bool:
    """Whether the group has no member but the owner, as the groups that a umask of 002 is for."""
    try:
        owner, members = pwd.getpwuid(status.st_uid).pw_name, grp.getgrgid(status.st_gid).gr_mem
    except KeyError:
        return False
    primary = {user.pw_name for user in pwd.getpwall() if user.pw_gid == status.st_gid}
    return {*members, *primary} <= {owner}
