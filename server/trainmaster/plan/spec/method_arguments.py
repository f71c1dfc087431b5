"""Checks `method_args`: a closed table, so that a misspelt one is refused."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from trainmaster.errors.errors import Problem
from trainmaster.plan.fields.field_tree import nearest
from trainmaster.plan.frameworks import Framework


def argument_problems(
    given: Mapping[str, Any], method: str, framework: Framework
) -> Iterator[Problem]:
    """What is wrong with `method_args`."""
    known = framework.arguments.get(method, {})
    for name, value in given.items():
        field = f"method_args.{name}"
        if name not in known:
            yield _unknown(field, name, method, framework, list(known))
        elif not known[name].accepts(value):
            yield Problem(
                "INVALID_VALUE",
                field,
                f"`{field}` is {value!r}.",
                f"`{field}` takes {known[name].words}.",
            )
    for name, argument in known.items():
        if argument.default is ... and given.get(name) is None:
            yield Problem(
                "MISSING_FIELD",
                f"method_args.{name}",
                f"`method_args.{name}` is missing, which {method} needs.",
                f"Give `method_args.{name}`: {argument.words}.",
            )


def _unknown(field: str, name: str, method: str, framework: Framework, known: list[str]) -> Problem:
    meant = nearest(name, known)
    guess = f" Did you mean `{meant}`?" if meant else ""
    return Problem(
        "UNKNOWN_KEY",
        field,
        f"`{field}` is not an argument of {method} with {framework.name}.{guess}",
        f"`method_args` takes {', '.join(known)}." if known else "Leave `method_args` out.",
    )
