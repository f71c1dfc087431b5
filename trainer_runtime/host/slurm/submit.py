"""Give a run what it needs next: a job, or on the login node an answer that takes no allocation.

Whatever is decided here is decided under a lock in the run's folder, after a list of its jobs:
never two jobs of a run. Where neither helps (two login nodes, a controller that lags behind), the
script's `--dependency=singleton` keeps the second job from starting before the first was asked to
end, and the lock of the run's supervisor until it has ended.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

from trainer_runtime.core.answers.slurm import (
    COMPLETING,
    RUNNING,
    WAITING,
    JobAnswer,
    JobId,
    SubmitAnswer,
)
from trainer_runtime.core.files.durable import is_locked, lock_within
from trainer_runtime.core.lease.session import Session
from trainer_runtime.core.protocol.desired import Desired
from trainer_runtime.core.protocol.states import ENDED_PLACEMENTS, DesiredState
from trainer_runtime.host.files.files import read_fields, read_json, write_json
from trainer_runtime.host.files.given_up import give_up
from trainer_runtime.host.files.layout import RunFolder
from trainer_runtime.host.slurm import array
from trainer_runtime.host.slurm.accounting import Accounted, ended_jobs
from trainer_runtime.host.slurm.array import Array, open_array
from trainer_runtime.host.slurm.faulty_nodes import (
    avoided_nodes,
    faulty_jobs,
    in_words,
    is_hopeless,
    node_of,
    note_faulty,
)
from trainer_runtime.host.slurm.folder_probe import forget_partition, try_folder
from trainer_runtime.host.slurm.programs import SlurmError, run_program
from trainer_runtime.host.slurm.queue import jobs_by_name, kept_job
from trainer_runtime.host.slurm.session import CANCELS
from trainer_runtime.host.slurm.submitted import Line, note_job, submitted_job, submitted_lines
from trainer_runtime.host.supervise.detach import start_detached

# Consecutive jobs without a newer verified checkpoint before the run is given up, as of sessions.
MOST_BARREN = 3
# The same of jobs that nobody can say of whether they began.
MOST_UNSEEN = 10
# Of a job whose node has no folder of the run: by `job.sh`, and by Slurm, which then can't write
# the job's output.
_NO_FOLDER = ("66:0", "0:53")
_NO_MODULE = "67:0"
_NO_ROOT = "folder_missing"
SCRIPT = "job.sh"
_LOCK_WAIT_S = 20.0
_ENDS_WITHIN_S = 15.0
_CANCELS_WITHIN_S = 5.0
_POLL_S = 0.1


def submit(run: RunFolder) -> SubmitAnswer:
    """Make sure that the run has a job, where it needs one; may be repeated.

    Raises:
        SlurmError: Slurm can't be asked, or refuses the job; then nothing was submitted.
    """
    desired = _desired(run)
    job = kept_job(run.host_root, run.root.name) if open_array(run) is None else None
    if job is not None and job.is_alive and desired.state is DesiredState.RUNNING:
        return SubmitAnswer(False, job)
    lock = lock_within(run.root / ".submit.lock", _LOCK_WAIT_S)
    if lock is None:
        raise SlurmError("SLURM_FAILED", "another call submits this run", "Try again.")
    try:
        return _submit_locked(run, desired)
    finally:
        os.close(lock)


def check(run: RunFolder) -> str | None:
    """Ask Slurm whether it would take the run's job, and try whether its nodes would have the run's
    folder; the job is not queued. Returns why the latter could not be found out; None where it was.

    Raises:
        SlurmError: it would not, or can't be asked; `FOLDER_NOT_SHARED`.
    """
    together = open_array(run)
    if together is not None and together.index > 0:
        return None  # one script is that of all
    script = SCRIPT if together is None else array.SCRIPT
    run_program("sbatch", "--test-only", script, folder=run.root)
    return try_folder(run)


def cancel(run: RunFolder, signal: str | None = None) -> bool:
    """End the run's job at once, or signal its supervisor; False where it has none."""
    job = _alive(run)
    is_running = job is not None and job.state == RUNNING and job.word != COMPLETING
    if job is None or (signal is not None and not is_running):
        return False
    if signal is not None:
        run_program("scancel", f"--signal={signal.removeprefix('SIG')}", "--batch", str(job.job_id))
        return True
    job_id = job.job_id
    note_job(run, job_id, cancelled=True)
    began = time.monotonic()
    while job is not None and job.job_id == job_id and time.monotonic() < began + _ENDS_WITHIN_S:
        is_hung = time.monotonic() > began + _CANCELS_WITHIN_S
        with suppress(SlurmError):  # it may have ended, or begun, since it was listed
            run_program("scancel", *_killing(job, is_hung=is_hung), str(job_id))
        time.sleep(_POLL_S)
        job = _alive(run)
    return True


def _killing(job: JobAnswer, *, is_hung: bool) -> tuple[str, ...]:
    """How a job is ended that saves nothing. One that waited when it was listed and has begun since
    is left alone: it would be asked to end by SIGTERM, and save."""
    if job.word == "PENDING":
        return ("--state=PENDING",)
    if is_hung:
        return ("--signal=KILL", "--full")
    return (f"--signal={CANCELS.name.removeprefix('SIG')}", "--batch")


def _submit_locked(run: RunFolder, desired: Desired) -> SubmitAnswer:
    together, started = open_array(run), False
    if together is not None:
        started = _submit_together(run, together)
        if not started and open_array(run) is not None and _needs_node(run, desired):
            return SubmitAnswer(False)  # the others are still to come
    jobs = jobs_by_name(run.host_root, run.root.name)
    alive = next((job for job in jobs if job.is_alive), None)
    if alive is not None and desired.state is DesiredState.RUNNING:
        return SubmitAnswer(started, alive)
    cancelled = None
    if alive is not None and alive.state == WAITING:
        waiting, alive = alive.job_id, _taken_from_queue(run, alive.job_id)
        cancelled = waiting if alive is None else None
    if alive is not None or is_locked(run.supervisor_lock):
        return SubmitAnswer(False, alive)
    why = why_given_up(run, desired, jobs) if _needs_node(run, desired) else None
    if why is not None:
        give_up(run, *why)
    if why is not None or not _needs_node(run, desired):
        return SubmitAnswer(_answer_here(run), None, cancelled)
    run.supervisor_errors.parent.mkdir(exist_ok=True)  # a job without its output's folder fails
    job_id, avoided = _sbatch(run)
    _note_submitted(run, desired, job_id)
    job = next((job for job in jobs_by_name(run.host_root, run.root.name) if job.is_alive), None)
    return SubmitAnswer(True, job or JobAnswer(0, job_id, WAITING, "PENDING"), avoided=avoided)


def _sbatch(run: RunFolder) -> tuple[int, tuple[str, ...]]:
    """The number of a new job, and the nodes that it avoids: none where it could have no others."""
    if avoided := avoided_nodes(run):
        words = ("--parsable", f"--exclude={','.join(avoided)}", SCRIPT)
        try:
            return submitted_job(run_program("sbatch", *words, folder=run.root)), tuple(avoided)
        except SlurmError as error:
            if error.refusal["code"] != "JOB_REFUSED":
                raise
    return submitted_job(run_program("sbatch", "--parsable", SCRIPT, folder=run.root)), ()


def _submit_together(run: RunFolder, together: Array) -> bool:
    """Submit the run's array once all its runs are here; whether this call did."""
    with array.joined(together, run) as is_whole:
        if not is_whole or open_array(run) is None:
            return False
        desired = {index: _desired(member) for index, member in together.runs.items()}
        wanted = {
            index: member
            for index, member in together.runs.items()
            if _needs_node(member, desired[index])
        }
        number = array.submit_array(together, wanted)
        for index, member in wanted.items():
            _note_submitted(member, desired[index], f"{number}_{index}")
        return bool(wanted)


def _note_submitted(run: RunFolder, desired: Desired, job_id: JobId) -> None:
    step = verified_step(run)
    note_job(run, job_id, generation=desired.generation, verified_step=step)


def _taken_from_queue(run: RunFolder, job_id: JobId) -> JobAnswer | None:
    """Cancel a job, but only while it waits: one that has begun meanwhile answers by itself, and
    saves. The job that is alive then."""
    note_job(run, job_id, cancelled=True)
    run_program("scancel", "--state=PENDING", str(job_id))
    alive = _alive(run)
    if alive is not None:
        note_job(run, job_id, cancelled=False)
    return alive


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


def _answer_here(run: RunFolder) -> bool:
    """By a supervisor without a session: it answers what is asked, and begins nothing."""
    now = time.time()
    run.nodes.unlink(missing_ok=True)  # of a job that was killed
    write_json(run.session, Session(0, now, now, 0.0).to_dict())
    answer = start_detached(run.root)
    if answer.error is not None:
        raise SlurmError("SUPERVISOR_DID_NOT_START", answer.error, "Read logs/supervisor.err.")
    return answer.started


def why_given_up(
    run: RunFolder, desired: Desired, jobs: Sequence[JobAnswer]
) -> tuple[str, str] | None:
    """Why no further job is submitted for a request: its reason and the words for it. `jobs`: what
    Slurm's controller knows of the run's. Notes which of them never began.

    Raises:
        SlurmError: Slurm can't be asked.
    """
    newest = _newest(run, desired, jobs)
    if newest is None:
        return None
    lacks = _lacks(run, newest)
    if lacks is not None:
        note_faulty(run, newest.job_id, newest.node)
        submitted = _of_request(submitted_lines(run.root), desired)
        reason, what = lacks
        if reason == _NO_ROOT:
            forget_partition(run)
        return (
            (reason, f"{in_words(run, submitted)} {what}") if is_hopeless(run, submitted) else None
        )
    _note_not_begun(run, jobs, newest)
    return _without_progress(run, desired, newest)


def _lacks(run: RunFolder, newest: _Newest) -> tuple[str, str] | None:
    """What the newest job's node lacks, as a reason and in words."""
    if newest.exit_code in _NO_FOLDER:
        return (
            _NO_ROOT,
            f"has no {run.root}: the host's root has to lie in a folder that login and compute "
            "nodes share",
        )
    if newest.exit_code == _NO_MODULE:
        return "module_missing", "could not load a module of the host: logs/job.out says which"
    return None


@dataclass(frozen=True, slots=True)
class _Newest:
    """The job that was submitted last. `begun`: None where nobody knows."""

    job_id: JobId
    word: str | None = None
    exit_code: str | None = None
    begun: bool | None = None
    node: str | None = None


def _newest(run: RunFolder, desired: Desired, jobs: Sequence[JobAnswer]) -> _Newest | None:
    lines = _of_request(submitted_lines(run.root), desired)
    job_id = lines[-1].get("job_id") if lines else None
    if not isinstance(job_id, (int, str)):
        return None
    listed = next((job for job in jobs if job.job_id == job_id), None)
    if listed is not None:
        shown = _shown(job_id)
        code = _exit_code(shown)
        return _Newest(job_id, listed.word, code, listed.has_begun, _node(job_id, code, shown))
    accounted = _accounted(run, job_id)
    if accounted is not None:
        begun, code = accounted.begin_t is not None, accounted.exit_code
        return _Newest(job_id, accounted.word, code, begun, _node(job_id, code, None))
    has_session = (read_json(run.session) or {}).get("job_id") == job_id
    return _Newest(job_id, begun=True if has_session else None)


def _accounted(run: RunFolder, job_id: JobId) -> Accounted | None:
    with suppress(SlurmError):  # a cluster without accounting
        accounted = ended_jobs([job_id]).get(job_id)
        return accounted if accounted is not None and accounted.name == run.root.name else None
    return None


def _node(job_id: JobId, code: str | None, shown: str | None) -> str | None:
    return node_of(job_id, shown) if code in (*_NO_FOLDER, _NO_MODULE) else None


def _shown(job_id: JobId) -> str | None:
    try:
        return run_program("scontrol", "show", "job", "--oneliner", str(job_id))
    except SlurmError:
        return None  # it was purged since


def _exit_code(shown: str | None) -> str | None:
    for word in (shown or "").split():
        if word.startswith("ExitCode="):
            return word[len("ExitCode=") :]
    return None


def _note_not_begun(run: RunFolder, jobs: Sequence[JobAnswer], newest: _Newest) -> None:
    """Note jobs that ended as they waited: Slurm forgets them. One that is forgotten and has left
    no session in the run's folder counts as such, but not for ever."""
    lines = submitted_lines(run.root)
    submitted = {line.get("job_id") for line in lines}
    noted = {line.get("job_id") for line in lines if line.get("begun") is False}
    for job in jobs:
        if job.job_id in submitted - noted and not job.is_alive and not job.has_begun:
            note_job(run, job.job_id, begun=False)
            noted.add(job.job_id)
    if newest.job_id not in noted and not newest.begun:
        unseen = {} if newest.begun is False else {"unseen": True}
        note_job(run, newest.job_id, begun=False, **unseen)


def _without_progress(run: RunFolder, desired: Desired, newest: _Newest) -> tuple[str, str] | None:
    lines = submitted_lines(run.root)
    unseen = {line.get("job_id") for line in lines if line.get("unseen")}
    idle = {line.get("job_id") for line in lines if line.get("begun") is False} - unseen
    idle |= faulty_jobs(run)
    submitted = _of_request(lines, desired)
    now = verified_step(run)
    same = [line.get("job_id") for line in submitted if line.get("verified_step") == now]
    barren = sum(1 for job_id in same if job_id not in idle | unseen)
    lost = sum(1 for job_id in same if job_id in unseen)
    if barren < MOST_BARREN and lost < MOST_UNSEEN:
        return None
    how = "" if newest.word is None else f"; the last, {newest.job_id}, ended as {newest.word}"
    count = barren if barren >= MOST_BARREN else lost
    return "no_progress", f"{count} jobs in a row brought no newer verified checkpoint{how}"


def _of_request(lines: Sequence[Line], desired: Desired) -> list[Line]:
    """The submissions for a request."""
    return [line for line in lines if line.get("generation") == desired.generation]


def verified_step(run: RunFolder) -> int | None:
    """The newest checkpoint that was verified."""
    step = (read_json(run.checkpoint_index) or {}).get("resume_from")
    return step if isinstance(step, int) else None
