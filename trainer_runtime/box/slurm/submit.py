"""Give a run what it needs next: a job, or on the login node an answer that takes no allocation.

Whatever is decided here is decided under a lock in the run's folder, after a list of its jobs:
never two jobs of a run. Where neither helps (two login nodes, a controller that lags behind), the
script's `--dependency=singleton` keeps the second job from starting before the first has ended.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path

from trainer_runtime.box.files.files import read_fields, read_json, write_json
from trainer_runtime.box.files.given_up import give_up
from trainer_runtime.box.files.layout import RunFolder
from trainer_runtime.box.slurm.programs import SlurmError, run_program
from trainer_runtime.box.slurm.queue import jobs_by_name, kept_job
from trainer_runtime.box.supervise.detach import start_detached
from trainer_runtime.core.answers.slurm import (
    RUNNING,
    WAITING,
    JobAnswer,
    SubmitAnswer,
)
from trainer_runtime.core.files.durable import is_locked, lock_within
from trainer_runtime.core.lease.session import Session
from trainer_runtime.core.protocol.desired import Desired
from trainer_runtime.core.protocol.states import ENDED_PLACEMENTS, DesiredState

SCRIPT = "job.sh"
SUBMITTED = "jobs.jsonl"
# Consecutive jobs without a newer verified checkpoint before the run is given up, as of sessions.
MOST_BARREN = 3
# Of a job whose node has no folder of the run: by `job.sh`, and by Slurm, which then can't write
# the job's output.
_NO_FOLDER = ("66:0", "0:53")
_LOCK_WAIT_S = 20.0
_ENDS_WITHIN_S = 15.0
_POLL_S = 0.1


def submit(run: RunFolder) -> SubmitAnswer:
    """Make sure that the run has a job, where it needs one; may be repeated.

    Raises:
        SlurmError: Slurm can't be asked, or refuses the job; then nothing was submitted.
    """
    desired = _desired(run)
    known = kept_job(run.host_root, run.root.name)
    if known is not None and known.is_alive and desired.state is DesiredState.RUNNING:
        return SubmitAnswer(False, known)
    lock = lock_within(run.root / ".submit.lock", _LOCK_WAIT_S)
    if lock is None:
        raise SlurmError("SLURM_FAILED", "another call submits this run", "Try again.")
    try:
        return _submit_locked(run, desired)
    finally:
        os.close(lock)


def check(run: RunFolder) -> None:
    """Ask Slurm whether it would take the run's job; nothing is queued.

    Raises:
        SlurmError: it would not, or can't be asked.
    """
    run_program("sbatch", "--test-only", SCRIPT, folder=run.root)


def cancel(run: RunFolder, signal: str | None = None) -> bool:
    """End the run's job at once, or signal its supervisor; False where it has none."""
    job = _alive(run)
    if job is None or (signal is not None and job.state != RUNNING):
        return False
    if signal is not None:
        run_program("scancel", f"--signal={signal.removeprefix('SIG')}", "--batch", str(job.job_id))
        return True
    kill = ["--signal=KILL", "--full"] if job.state == RUNNING else []
    deadline = time.monotonic() + _ENDS_WITHIN_S
    while job is not None and time.monotonic() < deadline:
        with suppress(SlurmError):  # it may have ended, or begun, since it was listed
            run_program("scancel", *kill, str(job.job_id))
        time.sleep(_POLL_S)
        job = _alive(run)
        kill = ["--signal=KILL", "--full"] if job is not None and job.state == RUNNING else []
    return True


def _submit_locked(run: RunFolder, desired: Desired) -> SubmitAnswer:
    jobs = jobs_by_name(run.host_root, run.root.name)
    alive = next((job for job in jobs if job.is_alive), None)
    if alive is not None and desired.state is DesiredState.RUNNING:
        return SubmitAnswer(False, alive)
    if alive is not None and alive.state == WAITING:
        # Only while it waits: one that has begun meanwhile answers by itself, and saves.
        run_program("scancel", "--state=PENDING", str(alive.job_id))
        alive = _alive(run)
    if alive is not None or is_locked(run.supervisor_lock):
        return SubmitAnswer(False, alive)
    why = _given_up(run, desired, jobs) if _needs_node(run, desired) else None
    if why is not None:
        give_up(run, *why)
    if why is not None or not _needs_node(run, desired):
        return _answer_here(run)
    run.supervisor_errors.parent.mkdir(exist_ok=True)  # a job without its output's folder fails
    job_id = int(run_program("sbatch", "--parsable", SCRIPT, folder=run.root).split(";")[0])
    _note(run, desired, job_id)
    job = next((job for job in jobs_by_name(run.host_root, run.root.name) if job.is_alive), None)
    return SubmitAnswer(True, job or JobAnswer(0, job_id, WAITING, "PENDING"))


def _alive(run: RunFolder) -> JobAnswer | None:
    jobs = jobs_by_name(run.host_root, run.root.name)
    return next((job for job in jobs if job.is_alive), None)


def _desired(run: RunFolder) -> Desired:
    fields = read_fields(run.desired)
    if fields is None:
        raise SlurmError("SLURM_FAILED", f"{run.desired} can't be read", "Launch the run again.")
    return Desired.of(fields)


def _needs_node(run: RunFolder, desired: Desired) -> bool:
    """Whether something is to be trained, by what the supervisor last wrote of itself."""
    if desired.state is not DesiredState.RUNNING:
        return False
    state = read_json(run.state) or {}
    is_over = state.get("state") in {ended.value for ended in ENDED_PLACEMENTS}
    return not (is_over and state.get("generation") == desired.generation)


def _answer_here(run: RunFolder) -> SubmitAnswer:
    """By a supervisor without a session: it answers what is asked, and begins nothing."""
    now = time.time()
    run.nodes.unlink(missing_ok=True)  # of a job that was killed
    write_json(run.session, Session(0, now, now, 0.0).to_dict())
    answer = start_detached(run.root)
    if answer.error is not None:
        raise SlurmError("SUPERVISOR_DID_NOT_START", answer.error, "Read logs/supervisor.err.")
    return SubmitAnswer(answer.started)


def _given_up(run: RunFolder, desired: Desired, jobs: list[JobAnswer]) -> tuple[str, str] | None:
    """Why no further job is submitted for a request: its reason and the words for it."""
    lines = [line for line in _begun(run, jobs) if line.get("generation") == desired.generation]
    if not lines:
        return None
    last = lines[-1].get("job_id")
    if any(job.job_id == last for job in jobs) and _exit_code(last) in _NO_FOLDER:
        return (
            "folder_missing",
            f"the node of job {last} has no {run.root}: the host's root has to lie in a folder "
            "that login and compute nodes share",
        )
    now = _verified_step(run)
    barren = sum(1 for line in lines if line.get("verified_step") == now)
    if barren < MOST_BARREN:
        return None
    ended = next((job for job in jobs if job.job_id == last), None)
    how = "" if ended is None else f"; the last, {last}, ended as {ended.word}"
    return "no_progress", f"{barren} jobs in a row brought no newer verified checkpoint{how}"


def _exit_code(job_id: object) -> str | None:
    try:
        text = run_program("scontrol", "show", "job", "--oneliner", str(job_id))
    except SlurmError:
        return None  # it was purged
    for word in text.split():
        if word.startswith("ExitCode="):
            return word[len("ExitCode=") :]
    return None


def _verified_step(run: RunFolder) -> int | None:
    step = (read_json(run.checkpoint_index) or {}).get("resume_from")
    return step if isinstance(step, int) else None


def _submitted(run: RunFolder) -> list[dict[str, object]]:
    try:
        lines = (run.root / SUBMITTED).read_text().splitlines()
    except OSError:
        return []
    found = []
    for line in lines:
        with suppress(ValueError):  # torn by a kill
            found.append(json.loads(line))
    return [line for line in found if isinstance(line, dict)]


def _begun(run: RunFolder, jobs: Iterable[JobAnswer]) -> list[dict[str, object]]:
    """The submitted jobs but those that ended as they waited. Slurm forgets such a job, so that it
    is noted as long as it is known."""
    lines = _submitted(run)
    noted = {line.get("job_id") for line in lines if line.get("begun") is False}
    known = {line.get("job_id") for line in lines} - noted
    for job in jobs:
        if job.job_id in known and not job.is_alive and not job.has_begun:
            _append(run, {"t": time.time(), "job_id": job.job_id, "begun": False})
            noted.add(job.job_id)
    return [line for line in lines if line.get("job_id") not in noted]


def _note(run: RunFolder, desired: Desired, job_id: int) -> None:
    line = {
        "t": time.time(),
        "job_id": job_id,
        "generation": desired.generation,
        "verified_step": _verified_step(run),
    }
    _append(run, line)


def _append(run: RunFolder, line: Mapping[str, object]) -> None:
    with (run.root / SUBMITTED).open("a") as file:
        file.write(json.dumps(line) + "\n")


def session_number(folder: Path) -> int:
    """Which job of the run this is, by those that were submitted."""
    return max(1, len({line.get("job_id") for line in _submitted(RunFolder(folder))}))
