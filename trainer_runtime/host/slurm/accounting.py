"""How jobs ended, by Slurm's accounting: also those that the controller has forgotten."""

from __future__ import annotations

import pwd
import re
from collections.abc import Iterable
from dataclasses import dataclass

from trainer_runtime.core.answers.slurm import ENDED_WORDS, JobId, job_order, read_job_id
from trainer_runtime.host.slurm.programs import SlurmError, run_program

_FORMAT = "JobID,JobName,State,Start,End,ExitCode"
_COLUMNS = 6
_CANCELLED = re.compile(r"CANCELLED by (\d+)")


@dataclass(frozen=True, slots=True)
class Accounted:
    """A job that has ended. `by`: the user who cancelled it. Times are Unix seconds; `begin_t`:
    None where it never began."""

    job_id: JobId
    name: str
    word: str
    by: str | None
    begin_t: float | None
    end_t: float | None
    exit_code: str


def ended_jobs(numbers: Iterable[JobId]) -> dict[JobId, Accounted]:
    """Those of one's jobs that have ended, as far as accounting has heard of it yet.

    Raises:
        SlurmError: the cluster keeps no accounts (see `is_off`), or gives no answer.
    """
    asked = sorted(set(numbers), key=job_order)
    if not asked:
        return {}
    jobs = "--jobs=" + ",".join(map(str, asked))
    shape = ("--noheader", "--parsable2", "--allocations", f"--format={_FORMAT}")
    return read_accounted(run_program("sacct", *shape, jobs))


def read_accounted(text: str) -> dict[JobId, Accounted]:
    """By the output of `sacct`; of a number that was given out twice, the newer job."""
    jobs = {}
    for line in text.splitlines():
        row = line.split("|")
        job_id = read_job_id(row[0])
        if len(row) != _COLUMNS or job_id is None:
            continue
        _, name, state, begin, end, code = row
        word = state.split(" ")[0]
        if word in ENDED_WORDS:
            who = _CANCELLED.fullmatch(state)
            by = None if who is None else _user(int(who.group(1)))
            jobs[job_id] = Accounted(job_id, name, word, by, _time(begin), _time(end), code)
    return jobs


def is_off(error: SlurmError) -> bool:
    """Whether the cluster keeps no accounts, rather than being silent for now."""
    refusal = error.refusal
    return refusal["code"] == "SLURM_MISSING" or "is disabled" in refusal["message"]


def _user(number: int) -> str:
    try:
        return pwd.getpwuid(number).pw_name
    except KeyError:
        return f"uid {number}"


def _time(text: str) -> float | None:
    return float(text) if text.isdigit() and int(text) > 0 else None
