"""Whether a command line that a text names would be taken: parsed, not run."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from typing import Any

import typer

from trainmaster.cli.command_table import commands_for

# A value of the command's own type for the places that advice leaves open.
_OPEN = re.compile(r"\bSTEP\b|\bN\b|\bH\b|\bSECONDS\b")


def filled(words: Sequence[str]) -> list[str]:
    """With a value for what the reader of the advice is to choose."""
    return [_OPEN.sub("1", word.replace("…", "x")) for word in words]


def refusal(command: Sequence[str]) -> str | None:
    """Why the command line doesn't take the words behind `trainmaster`; None where it does."""
    # What is only known when it is said may have to be a number.
    words = filled(["1" if word == "X" else word for word in command]) or ["overview"]
    if words == ["--help"]:
        return None
    group = _commands()
    try:
        context = group.make_context("trainmaster", words)
        while words:
            name, group, words = group.resolve_command(context, words)
            nested = hasattr(group, "resolve_command")
            context = group.make_context(name, list(words), parent=context)
            if not nested or not words or words[0].startswith("-"):
                return None
    except Exception as error:  # of click, whatever kind of usage it is
        return str(error)
    return None


@cache
def _commands() -> Any:
    return typer.main.get_command(commands_for())
