"""Slurm: the last known job of each run, and when a cluster last gave an answer."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass

from trainmaster.store.control.facts import Facts

_JOB = "slurm_job/"
_SUBMITTED = "slurm_jobs/"
_ASKED = "slurm_asked/"
_REFUSED = "slurm_refused/"
_UNTRIED = "slurm_untried/"
_QUESTIONS = "slurm_questions/"
# Of a run's jobs, so many are remembered.
_MOST_JOBS = 200


@dataclass(frozen=True, slots=True)
class JobNote:
    """A run's newest job as it was at `t`. `state`: absent, waiting or running; `reason`: Slurm's
    word for why it waits, or how it ended. Times are Unix seconds, of this machine's clock but for
    `begin_t` (expected where it waits) and `end_t`, its time limit. `alone`: it waits, and no other
    job of this user runs."""

    state: str
    t: float
    reason: str | None = None
    number: int | str | None = None
    begin_t: float | None = None
    end_t: float | None = None
    alone: bool = False


@dataclass(frozen=True, slots=True)
class Asked:
    """When a cluster was last asked, and why it gave no answer, if it gave none; `known_t`: when it
    last gave one."""

    t: float
    known_t: float | None = None
    error: str | None = None


@dataclass(frozen=True, slots=True)
class JobLine:
    """A job of a run, and how it ended. `word`: Slurm's state at its end, None where nobody knows;
    `by`: who ended it. `settled`: nothing more will be learnt; `gone_t`: since when it is known not
    to be alive; `avoided`: the nodes that it is kept from. Times are Unix seconds."""

    number: int | str
    word: str | None = None
    by: str | None = None
    begin_t: float | None = None
    end_t: float | None = None
    settled: bool = False
    gone_t: float | None = None
    avoided: str | None = None


@dataclass(frozen=True, slots=True)
class Refusal:
    """A submission that Slurm has refused, and those before it: `count`. `words`: why; `again_t`:
    when it is repeated (Unix seconds)."""

    words: str
    count: int
    again_t: float


@dataclass(frozen=True, slots=True)
class Questions:
    """How often it was asked, after a run's end, how its last jobs have ended; `t`: when last (Unix
    seconds)."""

    count: int
    t: float


class SlurmRecords:
    """Each method is one statement, but for `put_all`."""

    def __init__(self, facts: Facts) -> None:
        self._facts = facts

    def put(self, run_id: str, note: JobNote) -> None:
        self._facts.put(f"{_JOB}{run_id}", json.dumps(asdict(note)))

    def job(self, run_id: str) -> JobNote | None:
        text = self._facts.get(f"{_JOB}{run_id}")
        return None if text is None else JobNote(**json.loads(text))

    def forget(self, run_id: str) -> None:
        self._facts.remove(f"{_JOB}{run_id}")
        self._facts.remove(f"{_SUBMITTED}{run_id}")
        self.forget_questions(run_id)
        self.forget_refusal(run_id)
        self.put_untried(run_id, None)

    def put_untried(self, run_id: str, words: str | None) -> None:
        """Why it was not found out, as the run was placed, whether its nodes have its folder; None
        where it was."""
        if words is None:
            self._facts.remove(f"{_UNTRIED}{run_id}")
        else:
            self._facts.put(f"{_UNTRIED}{run_id}", words)

    def untried(self, run_id: str) -> str | None:
        return self._facts.get(f"{_UNTRIED}{run_id}")

    def put_questions(self, asked: Mapping[str, Questions]) -> None:
        """By run; in one transaction."""
        rows = {
            f"{_QUESTIONS}{run_id}": json.dumps(asdict(questions))
            for run_id, questions in asked.items()
        }
        self._facts.put_all(rows)

    def questions(self, run_id: str) -> Questions | None:
        """None before the first."""
        text = self._facts.get(f"{_QUESTIONS}{run_id}")
        return None if text is None else Questions(**json.loads(text))

    def forget_questions(self, run_id: str) -> None:
        self._facts.remove(f"{_QUESTIONS}{run_id}")

    def put_refusal(self, run_id: str, refusal: Refusal) -> None:
        self._facts.put(f"{_REFUSED}{run_id}", json.dumps(asdict(refusal)))

    def refusal(self, run_id: str) -> Refusal | None:
        """Of the run's newest submission; None where it was not refused."""
        text = self._facts.get(f"{_REFUSED}{run_id}")
        return None if text is None else Refusal(**json.loads(text))

    def forget_refusal(self, run_id: str) -> None:
        self._facts.remove(f"{_REFUSED}{run_id}")

    def put_all(self, notes: Mapping[str, JobNote]) -> None:
        """In one transaction: hundreds of runs cost one write to the disk."""
        rows = {f"{_JOB}{run_id}": json.dumps(asdict(note)) for run_id, note in notes.items()}
        self._facts.put_all(rows)

    def jobs(self, run_id: str) -> list[JobLine]:
        """The run's jobs, the oldest first, as far as this machine has seen them."""
        text = self._facts.get(f"{_SUBMITTED}{run_id}")
        return [] if text is None else [JobLine(**row) for row in json.loads(text)]

    def put_jobs(self, jobs: Mapping[str, Sequence[JobLine]]) -> None:
        """By run; in one transaction."""
        self._facts.put_all(
            {
                f"{_SUBMITTED}{run_id}": json.dumps(
                    [asdict(job_line) for job_line in lines[-_MOST_JOBS:]]
                )
                for run_id, lines in jobs.items()
            }
        )

    def note_asked(self, host: str, asked: Asked) -> None:
        self._facts.put(f"{_ASKED}{host}", json.dumps(asdict(asked)))

    def asked(self, host: str) -> Asked | None:
        text = self._facts.get(f"{_ASKED}{host}")
        return None if text is None else Asked(**json.loads(text))
