"""A command that advice names: its words, apart from the text around them.

Text carries a command as a code span that only this module writes and reads; each face shows the
words as one calls them there (`errors/advice.py` of the client).
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterable
from dataclasses import dataclass

_PROGRAM = "trainmaster"
_IN_SHELL = "$ "
_ANY_RUN = "RUN"
# What no shell needs quotes for; `{run}` and `…` stand in templates for names.
_SAFE = re.compile(r"[\w@%+=:,./{}…-]+")
# A word with a backtick has the span between two of them.
_SPAN = re.compile(r"(?<!`)(`{1,2})(\$ )?(trainmaster(?: .*?)?|--[a-z][a-z-]*(?: .*?)?)\1(?!`)")


@dataclass(frozen=True, slots=True)
class Named:
    """What a code span names. `words`: those behind the program's name; of an option alone, it and
    its value. `in_shell`: only a shell can do it, as waiting for hours."""

    words: tuple[str, ...]
    in_shell: bool = False
    is_option: bool = False


def command(name: str, *arguments: object, in_shell: bool = False) -> str:
    """The command as text carries it. `name`: with its group, as `hosts check`."""
    words = [_PROGRAM, *name.split(), *map(str, arguments)]
    return span_of((_IN_SHELL if in_shell else "") + line_of(words))


def option(name: str, value: object = None) -> str:
    """An option of the command that was just called, as text carries it."""
    return span_of(name if value is None else f"{name} {line_of([str(value)])}")


def with_commands(text: str, shown: Callable[[Named, str], str]) -> str:
    """The text with its commands as `shown` has them, given each with its span."""

    def replaced(span: re.Match[str]) -> str:
        try:
            words = tuple(shlex.split(span[3]))
        except ValueError:  # not one of ours
            return span[0]
        is_option = words[0] != _PROGRAM
        named = Named(words if is_option else words[1:], span[2] is not None, is_option)
        return shown(named, span[0])

    return _SPAN.sub(replaced, text)


def of_run(text: str, run_id: str) -> str:
    """The text with the run in its commands, which a catalogue has as RUN."""

    def shown(named: Named, span: str) -> str:
        if named.is_option or _ANY_RUN not in named.words:
            return span
        words = (run_id if word == _ANY_RUN else word for word in named.words)
        return command(*words, in_shell=named.in_shell)

    return with_commands(text, shown)


def names_command(text: str) -> bool:
    """Whether a command of ours is among what the text names."""
    return any(span[3].startswith(_PROGRAM) for span in _SPAN.finditer(text))


def line_of(words: Iterable[str]) -> str:
    """The words as a shell's line."""
    return " ".join(word if _SAFE.fullmatch(word) else shlex.quote(word) for word in words)


def span_of(code: str) -> str:
    """Code as text marks it."""
    fence = "``" if "`" in code else "`"
    return f"{fence}{code}{fence}"
