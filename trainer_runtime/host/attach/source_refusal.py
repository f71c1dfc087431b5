"""Why a source can't be watched, in words about this machine and its accounts."""

from __future__ import annotations

import os
import pwd
import re
from collections.abc import Iterable

# Names that others gave are only passed on where they can't be read as anything else.
_PLAIN = re.compile(r"[\w./@:+=,~-]{1,200}")


class RefusedError(Exception):
    """It can't be watched: `code` as in the operator's table of errors."""

    def __init__(self, code: str, message: str, fix: str) -> None:
        super().__init__(message)
        self.refusal = {"code": code, "message": message, "fix": fix}


def plain(names: Iterable[str]) -> list[str]:
    """Those that are plain, each once, sorted."""
    return sorted({name for name in names if _PLAIN.fullmatch(name)})


def account_of(user: int) -> str:
    """The name of an account; its number where it has none."""
    try:
        return pwd.getpwuid(user).pw_name
    except KeyError:
        return str(user)


def account() -> str:
    return account_of(os.getuid())


def this_host() -> str:
    return os.uname().nodename
