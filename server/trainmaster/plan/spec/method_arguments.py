"""Checks `method_args`: a closed table, so that a misspelt one is refused."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from trainmaster.errors.errors import Problem
from trainmaster.plan.fields.field_tree import nearest
from trainmaster.plan.frameworks import Framework


def argument_problems(
    values: Mapping[str, Any], method: str, framework: Framework
) -> Iterator[Problem]:
    """What is wrong with `method_args`."""
    arguments = framework.arguments.get(method, {})
    for name, value in values.items():
        field = f"method_args.{name}"
        if name not in arguments:
            yield _unknown(field, name, method, framework, list(arguments))
        elif not arguments[name].accepts(value):
            yield Problem(
                "INVALID_VALUE",
                field,
                f"`{field}` is {value!r}.",
                f"`{field}` takes {arguments[name].words}.",
            )
    for name, argument in arguments.items():
        if argument.default is ... and values.get(name) is None:
            yield Problem(
                "MISSING_FIELD",
                f"method_args.{name}",
                f"`method_args.{name}` is missing, which {method} needs.",
                f"Give `method_args.{name}`: {argument.words}.",
            )


def _unknown(
    field: str, name: str, method: str, framework: Framework, arguments: list[str]
) -> Problem:
    meant = nearest(name, arguments)
    guess = f" Did you mean `{meant}`?" if meant else ""
    return Problem(
        "UNKNOWN_KEY",
        field,
        f"`{field}` is not an argument of {method} with {framework.name}.{guess}",
        f"`method_args` takes {', '.join(arguments)}." if arguments else "Leave `method_args` out.",
    )
