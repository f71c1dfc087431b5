"""A line of the user's crontab."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from trainmaster.keeper.call import Call, marker_of
from trainmaster.keeper.scheduler import (
    CommandResult,
    SchedulerName,
    call_program,
    scheduler_refused,
)

CRONTAB = "crontab"
_DAEMONS = frozenset({"cron", "crond", "fcron", "dcron", "busybox"})
_PROCESSES = Path("/proc")


class Crontab:
    """A `Scheduler` that owns one line of the crontab; all others are kept."""

    name: SchedulerName = "cron"

    def __init__(self, home: Path, environment: Mapping[str, str]) -> None:
        self._home = home
        self._environment = environment

    def problem(self) -> str | None:
        result = self._listed()
        if result.code is None:
            return "crontab is not there"
        return result.message if result.code else None

    def entries(self) -> dict[str, str]:
        own = [line for line in self._lines() if self._is_own(line)]
        return {CRONTAB: own[0]} if own else {}

    def written(self, call: Call) -> dict[str, str]:
        return {CRONTAB: line(call)}

    def install(self, call: Call) -> None:
        others = [kept for kept in self._lines() if not self._is_own(kept)]
        self._replace([*others, line(call)])

    def remove(self) -> None:
        if self.entries():
            self._replace([kept for kept in self._lines() if not self._is_own(kept)])

    def hints(self) -> list[str]:
        if not _PROCESSES.is_dir() or _is_running():
            return []
        return ["No cron daemon seems to run here: have it started (`service cron start`)."]

    def _is_own(self, entry: str) -> bool:
        return entry.endswith(_escaped(marker_of(self._home)))

    def _lines(self) -> list[str]:
        result = self._listed()
        if result.code != 0:
            raise scheduler_refused((CRONTAB, "-l"), result)
        return result.text.splitlines()

    def _listed(self) -> CommandResult:
        result = call_program(self._environment, CRONTAB, "-l")
        is_empty = result.code == 1 and "no crontab for" in result.message
        return CommandResult(0, "", "") if is_empty else result

    def _replace(self, lines: list[str]) -> None:
        words = (CRONTAB, "-") if lines else (CRONTAB, "-r")
        text = "".join(f"{entry}\n" for entry in lines)
        result = call_program(self._environment, *words, stdin=text)
        if result.code != 0:
            raise scheduler_refused(words, result)


def line(call: Call) -> str:
    """The whole line. The output of the last tick is kept in the home's `keeper.log`."""
    when = "0 * * * *" if call.every_minutes == 60 else f"*/{call.every_minutes} * * * *"
    variable = f"TRAINMASTER_HOME={shlex.quote(str(call.home))}"
    log = shlex.quote(str(call.home / "keeper.log"))
    command = f"{variable} {shlex.join(call.words)} > {log} 2>&1 {marker_of(call.home)}"
    return f"{when} {_escaped(command)}"


def _escaped(command: str) -> str:
    """Escape `%`, which ends a command for cron."""
    return command.replace("%", "\\%")


def _is_running() -> bool:
    for process in _PROCESSES.iterdir():
        with suppress(OSError):
            if process.name.isdigit() and (process / "comm").read_text().strip() in _DAEMONS:
                return True
    return False
