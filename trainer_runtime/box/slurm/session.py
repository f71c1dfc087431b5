"""One job of a run, on its compute node: a session that ends with the job's time limit.

`job.sh` becomes this process, which supervises in the foreground. SIGTERM, which Slurm sends before
it takes the node away, reaches every process of the job: it brings the session's end forward, and
the supervisor stays to note how the trainer ended.
"""

from __future__ import annotations

import os
import signal
import time
from contextlib import suppress
from pathlib import Path

from trainer_runtime.box.files.files import read_json, write_json
from trainer_runtime.box.files.layout import RunFolder
from trainer_runtime.box.slurm.programs import SlurmError, run_program
from trainer_runtime.box.slurm.submit import session_number
from trainer_runtime.box.supervise.start import supervise
from trainer_runtime.core.files.durable import is_locked
from trainer_runtime.core.lease.session import Session

# A supervisor on the login node, which answers a request, needs the run for moments.
_UNLOCKED_WITHIN_S = 60.0
_POLL_S = 0.1
_DAY_S = 86400.0


def run_session(folder: Path) -> int:
    """Supervise the run until it or the job is over; the job's exit code."""
    run = RunFolder(folder)
    limits = (read_json(run.config) or {}).get("slurm") or {}
    begin_t, margin_s = time.time(), float(limits.get("margin_s") or 60.0)
    session = Session(session_number(folder), begin_t, _end_t(begin_t, limits), margin_s)

    def end_early(number: int, frame: object) -> None:
        nonlocal session
        session = session.ended_at(time.time())
        with suppress(OSError):  # a disk may be full: then it ends without a moment to save
            write_json(run.session, session.to_dict())

    signal.signal(signal.SIGTERM, end_early)
    deadline = time.monotonic() + _UNLOCKED_WITHIN_S
    while is_locked(run.supervisor_lock) and time.monotonic() < deadline:
        time.sleep(_POLL_S)
    write_json(run.session, session.to_dict())
    return supervise(folder)


def _end_t(begin_t: float, limits: dict[str, object]) -> float:
    """When Slurm ends the job: as Slurm says, else by the limit that it was submitted with."""
    job = os.environ.get("SLURM_JOB_ID", "")
    if job.isdigit():
        with suppress(SlurmError):
            text = run_program("squeue", "--noheader", f"--jobs={job}", "--format=%e").strip()
            if text.isdigit():
                return float(text)
    minutes = limits.get("limit_minutes")
    return begin_t + (60.0 * minutes if isinstance(minutes, int) else _DAY_S)
