"""What a run's name means: the newest run of its line.

A second launch under a name is recorded as `name-2`, a third as `name-3`. They are one line.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar

from trainer_runtime.core.protocol.command import command
from trainmaster.errors.errors import StateError

_MOST_COMPARED = 2000
_MOST_SUGGESTED = 3

_meant: ContextVar[dict[str, str] | None] = ContextVar("meant", default=None)
_exact: ContextVar[bool] = ContextVar("exact", default=False)


@contextmanager
def names_meant() -> Iterator[dict[str, str]]:
    """Names that were used within and mean a later run of their line, with that one's name."""
    meant: dict[str, str] = {}
    token = _meant.set(meant)
    try:
        yield meant
    finally:
        _meant.reset(token)


@contextmanager
def exact_names(is_exact: bool = True) -> Iterator[None]:
    """Within, a name is that of one run alone, as where several are compared."""
    token = _exact.set(is_exact or _exact.get())
    try:
        yield
    finally:
        _exact.reset(token)


def are_exact() -> bool:
    return _exact.get()


def note_meant(name: str, run_name: str) -> None:
    """Record that `name` was understood as another run."""
    meant = _meant.get()
    if meant is not None:
        meant[name] = run_name


def meaning_of(name: str, run_name: str) -> str:
    """What is said of a name that means a later run."""
    return f"{name} means the newest run of that name: {run_name}."


def is_of_line(name: str, run_name: str, spec: str) -> bool:
    """Whether a run belongs to the line of `name`: it was launched under that name."""
    if run_name == name:
        return True
    if not re.fullmatch(re.escape(name) + r"-[0-9]{1,6}", run_name):
        return False
    try:
        launched_as = json.loads(spec).get("name")
    except (ValueError, AttributeError):
        return not spec.strip()  # attached ones have no spec
    return bool(launched_as == name)


def not_found(run: str, names: Sequence[str]) -> StateError:
    """The error for a run that is not on record; `names`: ids and names, the newest first."""
    import difflib  # nobody else needs it

    close = difflib.get_close_matches(run, list(dict.fromkeys(names))[:_MOST_COMPARED], n=12)
    likely = list(dict.fromkeys(re.sub(r"-[a-z2-7]{6}$", "", name) for name in close))
    meant = f"Did you mean {' or '.join(likely[:_MOST_SUGGESTED])}? " if likely else ""
    return StateError(
        "RUN_NOT_FOUND", f"No run is called {run!r}.", f"{meant}{command('runs')} lists them."
    )
