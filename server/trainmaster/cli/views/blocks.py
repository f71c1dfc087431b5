"""The parts of which views of answers are made, and the way to an answer's view."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import singledispatch
from importlib import import_module
from importlib.util import find_spec

from trainer_runtime.core.protocol.figures import number_text
from trainmaster.answers.base import Answer


@dataclass(frozen=True, slots=True)
class Grid:
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]


Block = str | Grid


@singledispatch
def view(answer: Answer) -> list[Block]:
    """The answer as blocks, in reading order; as JSON where no view of it is known.

    An answer of `answers.NAME` is shown by `cli.views.NAME`, imported when it is asked for.
    """
    default = view.dispatch(type(answer))
    named_alike = f"{__package__}.{type(answer).__module__.rpartition('.')[2]}"
    if find_spec(named_alike) is not None:
        import_module(named_alike)
    shown_by = view.dispatch(type(answer))
    return [answer.model_dump_json(indent=2)] if shown_by is default else shown_by(answer)


def named(name: str, text: str | None) -> Iterable[Block]:
    """A line for what may be missing."""
    return (f"{name}: {text}",) if text else ()


def steps(step: int, target_step: int | None) -> str:
    """How far a run is."""
    return (
        number_text(step)
        if target_step is None
        else f"{number_text(step)} of {number_text(target_step)}"
    )


def pairs(values: Mapping[str, object]) -> str:
    """Names and values side by side, in one cell."""
    return "  ".join(f"{name}={number_text(item)}" for name, item in values.items())


def figure(item: object) -> str:
    """A value; nothing where there is none."""
    return "" if item is None else number_text(item)
