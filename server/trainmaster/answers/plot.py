"""Answers of `plot`."""

from typing import Literal, cast, get_args

from trainmaster.answers.base import WholeAnswer
from trainmaster.answers.fields import field
from trainmaster.errors.errors import UsageError

Axis = Literal["step", "tokens", "time"]


class PlotAnswer(WholeAnswer):
    """A plot of runs: a file, or lines of text."""

    runs: dict[str, int] = field(description="drawn points per run")
    keys: list[str]
    marks: dict[str, list[str]] | None = field(
        default=None,
        description="what is marked in it, by run: restarts, phases, findings; the part of a log",
    )
    path: str | None = None
    size_bytes: int | None = None
    lines: list[str] | None = None


def as_axis(name: str) -> Axis:
    """The axis of this name.

    Raises:
        UsageError: `BAD_ARGUMENT`, there is none.
    """
    for axis in get_args(Axis):
        if name == axis:
            return cast(Axis, axis)
    accepted = ", ".join(get_args(Axis))
    raise UsageError(
        "BAD_ARGUMENT", f"{name!r} is not an axis.", f"Use one of {accepted}.", field="x"
    )
