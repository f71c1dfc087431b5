"""`jobs.jsonl` in a run's folder: the jobs that were submitted for it, and what became of them.

Lines of three kinds, each with `t` and `job_id`: of a submission, with `generation` and
`verified_step`; `begun: false` of a job that ended as it waited, as far as known (`unseen`: nobody
knows); `cancelled` of one that a command of ours ends, false where it came too late.
"""

from __future__ import annotations

import json
import re
import time
from contextlib import suppress
from pathlib import Path

from trainer_runtime.core.answers.slurm import JobId
from trainer_runtime.host.files.files import AppendedLog, LineReader
from trainer_runtime.host.files.layout import RunFolder
from trainer_runtime.host.slurm.programs import SlurmError

_SUBMITTED = "jobs.jsonl"
_NUMBER = re.compile(r"([0-9]+)(?:;.*)?")
Line = dict[str, object]


def submitted_lines(folder: Path) -> list[Line]:
    """All whole lines, the oldest first."""
    lines = []
    with suppress(OSError):
        for line in LineReader(folder / _SUBMITTED).read():
            with suppress(ValueError):  # torn by a kill
                lines.append(json.loads(line))
    return [line for line in lines if isinstance(line, dict)]


def note_job(run: RunFolder, job_id: JobId, **what: object) -> None:
    """Append a line."""
    log = AppendedLog(run.root / _SUBMITTED, 0)
    try:
        log.append_line(json.dumps({"t": time.time(), "job_id": job_id, **what}).encode() + b"\n")
    finally:
        log.close()


def is_cancelled_here(folder: Path, job_id: JobId) -> bool:
    """Whether a command of ours has ended this job."""
    lines = [line for line in submitted_lines(folder) if line.get("job_id") == job_id]
    said = [line["cancelled"] for line in lines if "cancelled" in line]
    return bool(said) and said[-1] is True


def session_number(folder: Path) -> int:
    """Which job of the run this is, by those that were submitted."""
    return max(1, len({line.get("job_id") for line in submitted_lines(folder)}))


def submitted_job(output: str) -> int:
    """The number in what `sbatch --parsable` prints (`42`, `42;cluster`), behind what a site's
    own sbatch says first.

    Raises:
        SlurmError: there is none.
    """
    for line in reversed(output.splitlines()):
        if match := _NUMBER.fullmatch(line.strip()):
            return int(match[1])
    raise SlurmError(
        "SLURM_FAILED",
        f"sbatch printed no job's number: {output.strip()[-200:]!r}.",
        "Try `sbatch --parsable job.sh` in the run's folder on the login node.",
    )
