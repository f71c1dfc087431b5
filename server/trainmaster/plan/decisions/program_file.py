"""The file that a program's command starts: it has to be among those that travel."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Sequence
from itertools import takewhile
from pathlib import PurePath

from trainmaster.errors.errors import PlanError
from trainmaster.plan.facts import CodeFacts
from trainmaster.plan.fields.field_tree import nearest
from trainmaster.plan.fields.script import ScriptSpec

_PYTHON = re.compile(r"python[0-9.]*")
_SHELLS = frozenset({"sh", "bash", "dash", "zsh", "ksh"})
# Programs that start a Python file which is among their words.
_STARTERS = frozenset(
    {
        *("torchrun", "accelerate", "deepspeed", "uv"),
        *("env", "nice", "nohup", "numactl", "stdbuf", "taskset", "time"),
    }
)
_MODULE = frozenset({"-m", "--module"})
# Python's options that take the next word.
_WITH_WORD = frozenset({"-W", "-X"})
_FILLED_IN = re.compile(r"[{$]")


def refuse_missing_file(script: ScriptSpec, code: CodeFacts) -> None:
    """Raises:
    PlanError: `COMMAND_NOT_FOUND`, the command starts a file that does not travel.
    """
    named = program_file(script.command)
    if code.in_place or named is None or leads_out(named):
        return
    path, names = posixpath.normpath(named), [name for name, _ in code.files]
    if not any(name == path or name.startswith(f"{path}/") for name in names):
        raise no_such_file(named, f"among the files of {script.path} that travel", names)


def program_file(command: Sequence[str]) -> str | None:
    """The file that a command starts, as the command has it; None where it is not clear."""
    program, words = PurePath(command[0]).name, command[1:]
    if _PYTHON.fullmatch(program):
        file = _after_options(words)
    elif program in _SHELLS:
        options = list(takewhile(lambda word: word[:1] in ("-", "+"), words))
        takes_command = any(
            "c" in word or "s" in word for word in options if not word.startswith("--")
        )
        file = None if takes_command else next(iter(words[len(options) :]), None)
    elif program in _STARTERS and not _MODULE.intersection(words):
        file = next((word for word in words if word.endswith(".py")), None)
    else:
        file = None
    return None if file is None or _FILLED_IN.search(file) else file


def leads_out(path: str) -> bool:
    """Whether a path does not lie in the program's folder."""
    return path.startswith(("/", "~")) or posixpath.normpath(path).startswith("..")


def no_such_file(named: str, where: str, names: Sequence[str]) -> PlanError:
    """The refusal; `names`: of the files that are there."""
    meant = nearest(named, list(names))
    return PlanError(
        "COMMAND_NOT_FOUND",
        f"`script.command` starts {named!r}, which is not {where}.",
        (f"Did you mean {meant}? " if meant else "")
        + "Name a file as seen from script.path"
        + ("; what git ignores does not travel." if names else "."),
        field="script.command",
    )


def _after_options(words: Sequence[str]) -> str | None:
    """Python's first word that is not an option; None for a module or a command."""
    at = 0
    while at < len(words):
        word = words[at]
        if word == "-" or word.startswith(("-m", "-c")):
            return None
        if not word.startswith("-"):
            return word
        at += 2 if word in _WITH_WORD else 1
    return None
