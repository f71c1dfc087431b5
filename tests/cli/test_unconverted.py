"""Taking text as it was typed gives what Typer's conversion gives, for every command."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import typer
from typer.main import get_command

from trainmaster.cli.command_table import LISTED, commands_for

_TYPED = ("", "a", "7", "-1", "0.5", "1e400", "nan", "true", "step", "train", " x ", "é", "None")


@pytest.mark.parametrize("word", [one.word for one in LISTED])
def test_values_are_what_typer_makes_of_them(word: str) -> None:
    compared = 0
    for context, parameter in _parameters(word):
        typers = type(parameter).process_value.__get__(parameter)
        for value in _values(parameter):
            ours = _outcome(parameter.process_value, context, value)
            assert ours == _outcome(typers, context, value), (parameter.name, value)
            compared += 1
    assert compared


def _parameters(word: str) -> Iterator[tuple[Any, Any]]:
    """All parameters of a command and of those below it, each with a context."""
    group: Any = get_command(commands_for([word]))
    context = group.make_context("trainmaster", [], resilient_parsing=True)
    waiting = [(group, context)]
    while waiting:
        command, at = waiting.pop()
        yield from ((at, parameter) for parameter in command.get_params(at))
        for below in getattr(command, "commands", {}).values():
            inner = below.make_context(below.name, [], parent=at, resilient_parsing=True)
            waiting.append((below, inner))


def _values(parameter: Any) -> list[Any]:
    """What the parser may hand over: nothing, the default, and what was typed."""
    several = parameter.multiple or parameter.nargs == -1
    given = [[], (), ["a"], ("a", "b"), ["1", "x"]] if several else [*_TYPED, True, False]
    return [None, parameter.default, *given]


def _outcome(process: Callable[[Any, Any], Any], context: Any, given: object) -> Any:
    try:
        value = process(context, given)
    except (typer.TyperException, typer.Exit) as error:
        return type(error), str(error), getattr(error, "message", None)
    if isinstance(value, list | tuple):
        return list(value) or None  # as Typer's wrapper of the function has it
    return str(value) if isinstance(value, float) else value
