"""Validates names of secrets, which become environment variables of the trainer."""

from __future__ import annotations

import re

from trainmaster.settings.clouds import KEY_NAMES

ACCEPTED = "the name of an environment variable, such as HF_TOKEN"
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}")
# These steer the shell, the loader, the interpreter or Trainmaster itself.
_RESERVED = re.compile(
    r"(?i)(PATH|HOME|SHELL|USER|LOGNAME|PWD|IFS|ENV|BASH_ENV|TMPDIR|LANG"
    r"|(LD|DYLD|LC|TRAINMASTER|BASH_FUNC|GCONV)_.*|PYTHON.*)"
)
# Keys of the user's accounts, which cost money or grant more than a training needs.
_OPERATORS = re.compile(rf"(?i)({'|'.join(KEY_NAMES.values())}|KAGGLE_.*)")


def is_operators(name: str) -> bool:
    """Whether a secret is for the client only, and is never given to a trainer."""
    return _OPERATORS.fullmatch(name) is not None


def name_problem(name: str) -> str | None:
    """The problem of a secret's name; None if it is valid."""
    if not _NAME.fullmatch(name):
        return "is not a valid name of an environment variable"
    if _RESERVED.fullmatch(name):
        return "names a variable that decides what runs, which no secret may replace"
    return None
