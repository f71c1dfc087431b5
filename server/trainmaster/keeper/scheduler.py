"""The port of what calls us from time to time; and asking a program of the system."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from trainer_runtime.core.protocol.text import shown
from trainmaster.keeper.call import Call
from trainmaster.words.errors import HostError

SchedulerName = Literal["systemd", "cron"]
_ANSWERS_WITHIN_S = 20.0


@dataclass(frozen=True, slots=True)
class Told:
    """What a program said: its output, and its last words. `code` is None where it is not there or
    hangs."""

    code: int | None
    text: str
    words: str


class Scheduler(Protocol):
    """Each method may be repeated, and touches only what is of the home that it was made for."""

    name: SchedulerName

    def problem(self) -> str | None:
        """Why nothing can be put here; None where it can."""

    def entries(self) -> dict[str, str]:
        """What stands there of ours, by where; empty where it is not installed."""

    def written(self, call: Call) -> dict[str, str]:
        """What `install` would write, by where. Touches nothing."""

    def install(self, call: Call) -> None:
        """Have `call` called from now on, in the place of what stood there of ours.

        Raises:
            HostError: `SCHEDULER_REFUSED`.
        """

    def remove(self) -> None:
        """Take away what is ours.

        Raises:
            HostError: `SCHEDULER_REFUSED`.
        """

    def hints(self) -> list[str]:
        """What still keeps it from working while nobody is logged in."""


def ask(environment: Mapping[str, str], *words: str, given: str | None = None) -> Told:
    """Call a program; `given` is its standard input."""
    try:
        done = subprocess.run(
            words,
            env=dict(environment),
            input=given or "",
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_ANSWERS_WITHIN_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return Told(None, "", str(error))
    said = (done.stderr.strip() or done.stdout.strip()).splitlines()
    return Told(done.returncode, done.stdout, said[-1] if said else f"exit code {done.returncode}")


def refused(words: Sequence[str], told: Told) -> HostError:
    """What is told of a program that didn't do what it was to do."""
    return HostError(
        "SCHEDULER_REFUSED",
        f"`{' '.join(words)}` failed: {shown(told.words.encode())}",
        "Mend that, or put what `trainmaster keeper install --print` prints there yourself.",
    )
