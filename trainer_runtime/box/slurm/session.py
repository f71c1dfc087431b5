"""One job of a run, on its compute node: a session that ends with the job's time limit.

`job.sh` becomes this process, which supervises in the foreground. SIGTERM, which Slurm sends before
it takes the node away, reaches every process of the job: it brings the session's end forward, and
the supervisor stays to note how the trainer ended.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from contextlib import suppress
from pathlib import Path

from trainer_runtime.box.files.files import read_json, write_json
from trainer_runtime.box.files.given_up import give_up
from trainer_runtime.box.files.layout import RunFolder
from trainer_runtime.box.slurm.job_nodes import UnfitNodesError, gather_nodes
from trainer_runtime.box.slurm.programs import SlurmError, run_program
from trainer_runtime.box.slurm.submitted import session_number
from trainer_runtime.box.supervise.job import cancel_own_job
from trainer_runtime.box.supervise.start import supervise
from trainer_runtime.core.answers.slurm import read_job_id
from trainer_runtime.core.files.durable import is_locked, write_atomic
from trainer_runtime.core.lease.session import Session
from trainer_runtime.core.records import dataclass

# To this process alone, it ends the job without a moment to save; any other end of a job that Slurm
# brings about begins with a SIGTERM to all processes, the trainer included.
CANCELS = signal.SIGUSR2
# A supervisor on the login node, which answers a request, needs the run for moments.
_UNLOCKED_WITHIN_S = 60.0
_POLL_S = 0.1
_DAY_S = 86400.0
# Jobs in a row whose nodes can't train together, of a run that has trained: others may get others.
_MOST_UNFIT = 3


@dataclass(slots=True)
class _Job:
    """`unfit`: the jobs before this one, in a row, whose nodes could not train together."""

    run: RunFolder
    session: Session
    unfit: int

    def end_early(self) -> None:
        self.session = self.session.ended_at(time.time())
        with suppress(OSError):  # a disk may be full: then it ends without a moment to save
            self.write()

    def write(self) -> None:
        """With the job's number, by which a later one knows that this has begun."""
        words = (os.environ.get(name, "") for name in ("SLURM_ARRAY_JOB_ID", "SLURM_ARRAY_TASK_ID"))
        job_id = read_job_id("_".join(words)) or read_job_id(os.environ.get("SLURM_JOB_ID", ""))
        also: dict[str, object] = {} if job_id is None else {"job_id": job_id}
        also |= {"unfit": self.unfit} if self.unfit else {}
        write_json(self.run.session, {**self.session.to_dict(), **also})


def run_session(folder: Path) -> int:
    """Supervise the run until it or the job is over; the job's exit code."""
    run = RunFolder(folder)
    limits = (read_json(run.config) or {}).get("slurm") or {}
    begin_t, margin_s = time.time(), float(limits.get("margin_s") or 60.0)
    session = Session(session_number(folder), begin_t, _end_t(begin_t, limits), margin_s)
    job = _Job(run, session, int((read_json(run.session) or {}).get("unfit") or 0))
    signal.signal(signal.SIGTERM, lambda *_: job.end_early())
    signal.signal(CANCELS, lambda *_: cancel_own_job(run))
    deadline = time.monotonic() + _UNLOCKED_WITHIN_S
    while is_locked(run.supervisor_lock) and time.monotonic() < deadline:
        time.sleep(_POLL_S)
    job.write()
    return _supervise_together(job)


def run_node(folder: Path) -> int:
    """Be the member of a further node of the job; what it has to know is on standard input."""
    signal.signal(signal.SIGTERM, lambda *_: None)  # the first node says when to save
    with sys.stdin.buffer as given:
        write_atomic(RunFolder(folder).nodes, given.read())
    return supervise(folder)


def _supervise_together(job: _Job) -> int:
    """With the job's further nodes, where it has some."""
    run = job.run
    run.nodes.unlink(missing_ok=True)  # an earlier job's
    steps = None
    try:
        steps = gather_nodes(run)
        _note_unfit(job, 0)
    except UnfitNodesError as error:
        if not _is_hopeless(job, error):
            return 1
    except (SlurmError, OSError) as error:
        print(f"session: {error}", file=sys.stderr, flush=True)
        return 1  # the next job may have other nodes
    try:
        return supervise(run.root)
    finally:
        if steps is not None:
            steps.close()
        run.nodes.unlink(missing_ok=True)


def _is_hopeless(job: _Job, error: UnfitNodesError) -> bool:
    """Whether the run is given up, as one that has never trained is at once. A node may be at fault
    for a while, and the cluster's others not at all."""
    unfit = job.unfit + 1
    has_trained = any(job.run.root.glob("attempts/*/process.json"))
    if has_trained and unfit < _MOST_UNFIT:
        _note_unfit(job, unfit)
        print(f"session: {error}: the next job may get other nodes", file=sys.stderr, flush=True)
        return False
    _note_unfit(job, 0)
    each = f", in {unfit} jobs in a row" if has_trained else ""
    give_up(job.run, error.reason, f"{error}{each}")
    return True


def _note_unfit(job: _Job, unfit: int) -> None:
    if unfit != job.unfit:
        job.unfit = unfit
        job.write()


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
