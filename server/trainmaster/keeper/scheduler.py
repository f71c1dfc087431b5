"""The port of a scheduler that calls the keeper, and calls of the system's programs."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from trainer_runtime.core.protocol.command import command
from trainer_runtime.core.protocol.text import shown
from trainmaster.errors.errors import HostError
from trainmaster.keeper.call import Call

SchedulerName = Literal["systemd", "cron"]
_ANSWERS_WITHIN_S = 20.0


@dataclass(frozen=True, slots=True)
class CommandResult:
    """The output of a program, and the last line of its message. `code` is None where the program
    is missing or hangs."""

    code: int | None
    text: str
    message: str


class Scheduler(Protocol):
    """Every method may be repeated, and touches only the entries of its own home."""

    name: SchedulerName

    def problem(self) -> str | None:
        """Why nothing can be installed here; None where it can."""

    def entries(self) -> dict[str, str]:
        """This home's entries, by file; empty where it is not installed."""

    def written(self, call: Call) -> dict[str, str]:
        """The text that `install` would write, by file. Touches nothing."""

    def install(self, call: Call) -> None:
        """Install `call`, replacing this home's entries.

        Raises:
            HostError: `SCHEDULER_REFUSED`.
        """

    def remove(self) -> None:
        """Remove this home's entries.

        Raises:
            HostError: `SCHEDULER_REFUSED`.
        """

    def hints(self) -> list[str]:
        """What still keeps it from working while the user is not logged in."""


def call_program(
    environment: Mapping[str, str], *words: str, stdin: str | None = None
) -> CommandResult:
    """Call a program; `stdin` is its standard input."""
    try:
        done = subprocess.run(
            words,
            env=dict(environment),
            input=stdin or "",
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_ANSWERS_WITHIN_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return CommandResult(None, "", str(error))
    said = (done.stderr.strip() or done.stdout.strip()).splitlines()
    return CommandResult(
        done.returncode, done.stdout, said[-1] if said else f"exit code {done.returncode}"
    )


def scheduler_refused(words: Sequence[str], result: CommandResult) -> HostError:
    """The error for a program that failed."""
    return HostError(
        "SCHEDULER_REFUSED",
        f"`{' '.join(words)}` failed: {shown(result.message.encode())}",
        f"Fix that, or install what {command('keeper install', '--print')} prints by hand.",
    )
