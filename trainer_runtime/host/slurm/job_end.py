"""When Slurm ends the job that this process belongs to."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass

from trainer_runtime.core.answers.slurm import COMPLETING, ENDED_WORDS
from trainer_runtime.host.slurm.programs import SlurmError, run_program

_KILL_WAIT = re.compile(r"^KillWait\s*=\s*([0-9]+)", re.MULTILINE)
# Slurm's default, and the least that its nodes wait.
_KILL_WAIT_S, _LEAST_KILL_WAIT_S = 30.0, 5.0


@dataclass(frozen=True, slots=True)
class JobEnd:
    """`t`: Unix seconds. `is_final`: Slurm has asked the job to end, and kills it then."""

    t: float
    is_final: bool = False


def find_job_end(now: float) -> JobEnd | None:
    """As the controller says; None where it can't be asked, or names no time to come.

    A job that is preempted with a grace time runs on until its end, which is near then. One that
    was asked to end is given the cluster's KillWait from then on.
    """
    job = os.environ.get("SLURM_JOB_ID", "")
    if not job.isdigit():
        return None
    try:
        text = run_program(
            "squeue", "--noheader", "--states=all", f"--jobs={job}", "--format=%T|%e"
        )
    except (SlurmError, OSError):
        return None
    word, _, end = text.strip().partition("|")
    if word == COMPLETING or word in ENDED_WORDS:
        return JobEnd(now + _kill_wait_s(), is_final=True)
    return JobEnd(float(end)) if end.isdigit() and float(end) > now else None


def _kill_wait_s() -> float:
    try:
        match = _KILL_WAIT.search(run_program("scontrol", "show", "config"))
    except (SlurmError, OSError):
        match = None
    return max(_LEAST_KILL_WAIT_S, _KILL_WAIT_S if match is None else float(match[1]))
