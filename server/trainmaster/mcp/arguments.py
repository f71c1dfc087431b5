"""What no argument of any tool may hold: refused before a tool sees it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

from trainer_runtime.core.decoding.limits import LARGEST_INTEGER, LEAST_INTEGER
from trainmaster.errors.errors import UsageError
from trainmaster.settings.yaml12 import MAX_BYTES

# A spec is the longest argument, and a list of words the deepest.
LONGEST_TEXT = MAX_BYTES
MAX_DEPTH = 8
MOST_VALUES = 2000


def refuse_unusable(arguments: Mapping[str, object]) -> None:
    """Refuse what no path, name, number or database can hold.

    Raises:
        UsageError: `BAD_ARGUMENT`, which names the argument.
    """
    for name, value in arguments.items():
        problem = _problem_of_text(name) or _problem(value)
        if problem is not None:
            raise UsageError(
                "BAD_ARGUMENT",
                f"The argument {name[:80]!r} {problem}.",
                "Give plain text without control codes, and numbers of at most 64 bits.",
                field=name,
            )


def _problem(argument: object) -> str | None:
    level: list[object] = [argument]
    for _ in range(MAX_DEPTH):
        if len(level) > MOST_VALUES:
            return f"has more than {MOST_VALUES:,} values"
        for value in level:
            problem = _problem_of(value)
            if problem is not None:
                return problem
        level = [item for value in level for item in _items(value)]
        if not level:
            return None
    return f"is nested deeper than {MAX_DEPTH} levels"


def _problem_of(value: object) -> str | None:
    if isinstance(value, str):
        return _problem_of_text(value)
    if isinstance(value, float) and not math.isfinite(value):
        return "is not a finite number"
    if isinstance(value, int) and not LEAST_INTEGER <= value <= LARGEST_INTEGER:
        return "is an integer beyond 64 bits"
    return None


def _problem_of_text(text: str) -> str | None:
    if len(text) > LONGEST_TEXT:
        return f"is longer than {LONGEST_TEXT:,} characters"
    if "\0" in text:
        return "holds a NUL character"
    try:
        text.encode()
    except UnicodeEncodeError:
        return "holds half of a surrogate pair"
    return None


def _items(value: object) -> Iterable[object]:
    if isinstance(value, Mapping):
        return (*value.keys(), *value.values())
    return value if isinstance(value, list) else ()
