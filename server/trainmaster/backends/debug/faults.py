"""Planted faults: what a simulated trainer does at a given step, once each in a run's life."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

KINDS = {
    "kill": "the trainer is killed (SIGKILL)",
    "crash": "the trainer raises and exits with 1",
    "exit": "the trainer exits with 0 without having completed",
    "oom": "the trainer runs out of GPU memory and exits with 1",
    "spike": "the loss is four times as high for 80 steps, unless a restart goes back before",
    "nan": "the loss becomes NaN; the guard ends the trainer with 76",
    "preempt": "SIGTERM arrives; the trainer saves and exits with 75",
    "damage": "one bit of the newest checkpoint flips, then the trainer is killed",
    "hang": "the trainer hangs for ever",
    "hangdata": "the trainer waits for ever for its next batch",
    "hangsave": "the trainer waits for ever for its checkpoint to be written",
    "unusable": "the trainer finds its configuration unusable and exits with 77",
}
FAULTS_VARIABLE = "TRAINMASTER_FAULTS"
STEP_VARIABLE = "TRAINMASTER_STEP_S"
_LONGEST_STEP_S = 3600.0
_FAULT = re.compile(r"([a-z]+)@(\d+)")


@dataclass(frozen=True, slots=True)
class Fault:
    kind: str
    step: int

    @property
    def name(self) -> str:
        return f"{self.kind}@{self.step}"


def parse_faults(text: str) -> tuple[Fault, ...]:
    """The faults in a list such as `kill@30 nan@50`.

    Raises:
        ValueError: an entry is none.
    """
    faults = []
    for entry in text.replace(",", " ").split():
        match = _FAULT.fullmatch(entry)
        if match is None or match.group(1) not in KINDS:
            raise ValueError(
                f"{entry!r} is not a valid fault; write KIND@STEP, KIND one of {', '.join(KINDS)}"
            )
        faults.append(Fault(match.group(1), int(match.group(2))))
    return tuple(faults)


def check_variables(variables: Mapping[str, str]) -> str | None:
    """The problem with the variables that steer a simulated trainer; None for none."""
    try:
        parse_faults(variables.get(FAULTS_VARIABLE, ""))
        if not 0 <= float(variables.get(STEP_VARIABLE, "0")) < _LONGEST_STEP_S:
            return f"{STEP_VARIABLE} is not between 0 and {_LONGEST_STEP_S:.0f} seconds"
    except ValueError as error:
        return str(error)
    return None


class PlantedFaults:
    """The faults that have not struck yet; that one struck is kept in the run's folder."""

    def __init__(self, text: str, folder: Path) -> None:
        self._faults = parse_faults(text)
        self._struck = folder / ".faults"

    def due(self, step: int) -> Fault | None:
        """The fault that strikes at this step, which from now on has struck."""
        for fault in self._faults:
            mark = self._struck / fault.name
            if fault.step == step and not mark.exists():
                mark.parent.mkdir(exist_ok=True)
                mark.touch()
                return fault
        return None
