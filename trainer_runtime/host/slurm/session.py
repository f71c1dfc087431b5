"""One job of a run, on its compute node: a session that ends with the job's time limit.

`job.sh` becomes this process, which supervises in the foreground. SIGTERM, which Slurm sends before
it takes the node away, reaches every process of the job: the session is over then, and the
supervisor stays to note how the trainer ended.
"""

from __future__ import annotations

import signal
import sys
import time
from pathlib import Path

from trainer_runtime.core.files.durable import is_locked, write_atomic
from trainer_runtime.host.files.given_up import give_up
from trainer_runtime.host.files.layout import RunFolder
from trainer_runtime.host.slurm.folder_probe import note_partition
from trainer_runtime.host.slurm.job_nodes import UnfitNodesError, gather_nodes
from trainer_runtime.host.slurm.job_session import JobSession
from trainer_runtime.host.slurm.programs import SlurmError
from trainer_runtime.host.supervise.job import cancel_own_job
from trainer_runtime.host.supervise.start import supervise

# To this process alone, it ends the job without a moment to save; any other end of a job that Slurm
# brings about begins with a SIGTERM to all processes, the trainer included.
CANCELS = signal.SIGUSR2
# A supervisor on the login node, which answers a request, needs the run for moments.
_UNLOCKED_WITHIN_S = 60.0
_POLL_S = 0.1
# Jobs in a row whose nodes can't train together, of a run that has trained: others may get others.
_MOST_UNFIT = 3


def run_session(folder: Path) -> int:
    """Supervise the run until it or the job is over; the job's exit code."""
    run = RunFolder(folder)
    job = JobSession(run)
    job.listen()
    signal.signal(CANCELS, lambda *_: cancel_own_job(run))
    deadline = time.monotonic() + _UNLOCKED_WITHIN_S
    while is_locked(run.supervisor_lock) and time.monotonic() < deadline:
        time.sleep(_POLL_S)
    job.write()
    note_partition(run)
    return _supervise_together(job)


def run_node(folder: Path) -> int:
    """Be the member of a further node of the job; what it has to know is on standard input."""
    signal.signal(signal.SIGTERM, lambda *_: None)  # the first node says when to save
    with sys.stdin.buffer as stdin:
        write_atomic(RunFolder(folder).nodes, stdin.read())
    return supervise(folder)


def _supervise_together(job: JobSession) -> int:
    """With the job's further nodes, where it has some."""
    run = job.run
    run.nodes.unlink(missing_ok=True)  # an earlier job's
    steps = None
    try:
        steps = gather_nodes(run)
        job.note_unfit(0)
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


def _is_hopeless(job: JobSession, error: UnfitNodesError) -> bool:
    """Whether the run is given up, as one that has never trained is at once. A node may be at fault
    for a while, and the cluster's others not at all."""
    unfit = job.unfit + 1
    has_trained = any(job.run.root.glob("attempts/*/process.json"))
    if has_trained and unfit < _MOST_UNFIT:
        job.note_unfit(unfit)
        print(f"session: {error}: the next job may get other nodes", file=sys.stderr, flush=True)
        return False
    job.note_unfit(0)
    each = f", in {unfit} jobs in a row" if has_trained else ""
    give_up(job.run, error.reason, f"{error}{each}")
    return True
