"""One job of a run, on its compute node: a session that ends with the job's time limit.

`job.sh` becomes this process, which supervises in the foreground. SIGTERM, which Slurm sends before
it takes the node away, reaches every process of the job: the session is over then, and the
supervisor stays to note how the trainer ended.

Only `JobSession` writes that file, and only who holds its lock: a signal may come in the middle of
a write.
"""

from __future__ import annotations

import os
import re
import signal
import sys
import time
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from queue import SimpleQueue
from threading import Lock, Thread

from trainer_runtime.core.answers.slurm import COMPLETING, ENDED_WORDS, read_job_id
from trainer_runtime.core.files.durable import is_locked, write_atomic
from trainer_runtime.core.lease.session import Session
from trainer_runtime.host.files.files import read_json, write_json
from trainer_runtime.host.files.given_up import give_up
from trainer_runtime.host.files.layout import RunFolder
from trainer_runtime.host.slurm.folder_probe import note_partition
from trainer_runtime.host.slurm.job_nodes import UnfitNodesError, gather_nodes
from trainer_runtime.host.slurm.programs import SlurmError, run_program
from trainer_runtime.host.slurm.submitted import session_number
from trainer_runtime.host.supervise.job import cancel_own_job
from trainer_runtime.host.supervise.start import supervise

# What `--signal` has Slurm send before a time limit, to this process alone: nothing ends by it.
WARNS = signal.SIGUSR1
# After a SIGTERM by Slurm that nobody can be asked about: its default KillWait.
_KILLED_WITHIN_S = 30.0
# A SIGTERM may come from a person, too: then a trainer that hangs keeps its node no longer.
_LONGEST_SAVE_S = 3600.0
# A kill, and the note of it on a shared disk.
_AFTER_KILL_S = 5.0
_MARGIN_S = 60.0
_DAY_S = 86400.0
_KILL_WAIT = re.compile(r"^KillWait\s*=\s*([0-9]+)", re.MULTILINE)
# Slurm's default, and the least that its nodes wait.
_KILL_WAIT_S, _LEAST_KILL_WAIT_S = 30.0, 5.0
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


@dataclass(frozen=True, slots=True)
class _Signal:
    """`is_noted`: the session says so already."""

    number: int
    t: float
    is_noted: bool


class JobSession:
    """`unfit`: the jobs before this one, in a row, whose nodes could not train together."""

    def __init__(self, run: RunFolder) -> None:
        limits = (read_json(run.config) or {}).get("slurm") or {}
        self.run = run
        self.unfit = int((read_json(run.session) or {}).get("unfit") or 0)
        self._warned_s = float(limits.get("signal_s") or _MARGIN_S)
        self._whole = self._session = _planned(run.root, limits)
        self._is_asked = self._is_final = False
        self._lock = Lock()
        self._signals: SimpleQueue[_Signal] = SimpleQueue()

    def listen(self) -> None:
        """From now on, SIGTERM and the warning of a time limit bring the session up to date."""
        for number in (signal.SIGTERM, WARNS):
            signal.signal(number, self._receive)
        Thread(target=self._follow, name="session", daemon=True).start()

    def write(self) -> None:
        """Write it, with the job's number, by which a later one knows that this has begun."""
        with self._lock:
            self._write()

    def note_unfit(self, unfit: int) -> None:
        with self._lock:
            if unfit != self.unfit:
                self.unfit = unfit
                self._write()

    def _receive(self, number: int, _: object) -> None:
        """The session is over before the supervisor can see that its trainer has ended, unless
        what the signal interrupts is a write of it: then the thread follows up."""
        t, is_noted = time.time(), False
        if number == signal.SIGTERM and self._lock.acquire(blocking=False):
            try:
                self._save_soon(t)
                is_noted = True
            finally:
                self._lock.release()
        self._signals.put(_Signal(number, t, is_noted))

    def _follow(self) -> None:
        while True:
            received = self._signals.get()
            if received.number != signal.SIGTERM:
                self._refresh(received.t)
                continue
            if not received.is_noted:
                with self._lock:
                    self._save_soon(received.t)
            self._save_until_the_end(received.t)

    def _save_soon(self, t: float) -> None:
        """Have the trainer save, as if the node were taken away soon: an answer takes a while."""
        if not self._is_final:
            self._is_asked = True
            soon_t = t + _KILLED_WITHIN_S + _AFTER_KILL_S
            self._replace(self._whole.asked_at(t, min(self._whole.end_t, soon_t)))

    def _save_until_the_end(self, t: float) -> None:
        """The same until Slurm takes it away."""
        job_end = None if self._is_final else find_job_end(t)
        if job_end is not None:
            with self._lock:
                self._is_final = job_end.is_final
                self._replace(self._whole.asked_at(t, min(job_end.t, t + _LONGEST_SAVE_S)))

    def _refresh(self, t: float) -> None:
        """The limit is near, or was changed: the session ends when Slurm says so."""
        job_end = find_job_end(t)
        with self._lock:
            end_t = min(self._whole.end_t, t + self._warned_s) if job_end is None else job_end.t
            self._whole = replace(self._whole, end_t=end_t)
            if not self._is_asked:
                self._replace(self._whole)

    def _replace(self, session: Session) -> None:
        self._session = session
        with suppress(OSError):  # a disk may be full: then it ends without a moment to save
            self._write()

    def _write(self) -> None:
        words = (os.environ.get(name, "") for name in ("SLURM_ARRAY_JOB_ID", "SLURM_ARRAY_TASK_ID"))
        job_id = read_job_id("_".join(words)) or read_job_id(os.environ.get("SLURM_JOB_ID", ""))
        also: dict[str, object] = {} if job_id is None else {"job_id": job_id}
        also |= {"unfit": self.unfit} if self.unfit else {}
        write_json(self.run.session, {**self._session.to_dict(), **also})


def _planned(folder: Path, limits: dict[str, object]) -> Session:
    """To the end that Slurm says, else by the limit that the job was submitted with."""
    begin_t, minutes = time.time(), limits.get("limit_minutes")
    job_end = find_job_end(begin_t)
    limit_s = 60.0 * minutes if isinstance(minutes, int) else _DAY_S
    margin_s, save_s = (_seconds(limits.get(name)) for name in ("margin_s", "save_s"))
    margin_s = margin_s or _MARGIN_S
    return Session(
        number=session_number(folder),
        begin_t=begin_t,
        end_t=begin_t + limit_s if job_end is None else job_end.t,
        margin_s=margin_s,
        save_s=save_s,
        after_kill_s=min(_AFTER_KILL_S, margin_s / 2.0),
    )


def _seconds(value: object) -> float | None:
    return float(value) if isinstance(value, (int, float)) else None


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
