"""The command that a timer calls, and its interval: pure."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

from trainer_runtime.core.protocol.duration import format_duration, parse_duration
from trainmaster.errors.errors import UsageError
from trainmaster.store.detached import SAFELY

# Intervals that systemd and cron can both express evenly.
_MINUTES = (1, 2, 3, 4, 5, 6, 10, 12, 15, 20, 30, 60)
_MINUTE_S = 60
_HASH_CHARACTERS = 8


@dataclass(frozen=True, slots=True)
class Call:
    """`trainmaster tick` for one home, by the interpreter that has Trainmaster."""

    python: str
    home: Path
    every_minutes: int = 5

    @property
    def every(self) -> str:
        return format_duration(self.every_minutes * _MINUTE_S)

    @property
    def words(self) -> tuple[str, ...]:
        """`-P`: no module from the timer's working directory is imported."""
        tick = ("tick", "--every", self.every, "--json")
        return (self.python, *SAFELY, "-m", "trainmaster", *tick)


def parse_every(text: str) -> int:
    """The minutes of an interval.

    Raises:
        UsageError: `BAD_ARGUMENT` for one that not every scheduler supports.
    """
    try:
        seconds = parse_duration(text)
    except ValueError:
        seconds = 0.0
    minutes = int(seconds // _MINUTE_S)
    if minutes * _MINUTE_S != seconds or minutes not in _MINUTES:
        raise UsageError(
            "BAD_ARGUMENT",
            f"{text!r} is not a valid interval: not every kind of timer supports it.",
            f"Use one of {', '.join(format_duration(m * _MINUTE_S) for m in _MINUTES)}.",
            field="every",
        )
    return minutes


def refuse_odd_paths(call: Call) -> None:
    """Raises:
    UsageError: `UNSAFE_NAME`, a path with unprintable characters.
    """
    for path in (call.python, str(call.home)):
        if not path.isprintable():
            raise UsageError(
                "UNSAFE_NAME",
                f"{path!r} holds characters that no timer's file accepts.",
                "Use a home (TRAINMASTER_HOME) and an interpreter with printable paths.",
            )


def name_of(home: Path) -> str:
    """A name unique to the home, the same every time."""
    digest = hashlib.sha256(str(home).encode()).hexdigest()[:_HASH_CHARACTERS]
    return f"trainmaster-keeper-{digest}"


def marker_of(home: Path) -> str:
    """The comment that marks the entries of this home's keeper."""
    return f"# Trainmaster's keeper of {home}"
