"""Slurm: the last known job of each run, and when a cluster last gave an answer."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict

from trainer_runtime.core.records import dataclass
from trainmaster.store.control.facts import Facts

_JOB = "slurm_job/"
_ASKED = "slurm_asked/"


@dataclass(frozen=True, slots=True)
class JobNote:
    """A run's newest job as it was at `t`. `state`: absent, waiting or running; `reason`: Slurm's
    word for why it waits, or how it ended. Times are Unix seconds, of this machine's clock but for
    `begin_t` (expected where it waits) and `end_t`, its time limit."""

    state: str
    t: float
    reason: str | None = None
    number: int | None = None
    begin_t: float | None = None
    end_t: float | None = None


@dataclass(frozen=True, slots=True)
class Asked:
    """When a cluster was last asked, and why it gave no answer, if it gave none; `known_t`: when it
    last gave one."""

    t: float
    known_t: float | None = None
    error: str | None = None


class SlurmRecords:
    """Each method is one statement."""

    def __init__(self, facts: Facts) -> None:
        self._facts = facts

    def put(self, run_id: str, note: JobNote) -> None:
        self._facts.put(f"{_JOB}{run_id}", json.dumps(asdict(note)))

    def job(self, run_id: str) -> JobNote | None:
        text = self._facts.get(f"{_JOB}{run_id}")
        return None if text is None else JobNote(**json.loads(text))

    def forget(self, run_id: str) -> None:
        self._facts.remove(f"{_JOB}{run_id}")

    def put_all(self, notes: Mapping[str, JobNote]) -> None:
        for run_id, note in notes.items():
            self.put(run_id, note)

    def note_asked(self, host: str, asked: Asked) -> None:
        self._facts.put(f"{_ASKED}{host}", json.dumps(asdict(asked)))

    def asked(self, host: str) -> Asked | None:
        text = self._facts.get(f"{_ASKED}{host}")
        return None if text is None else Asked(**json.loads(text))
