"""Whether a run's next job is worth submitting, by how those before it have ended."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

from trainer_runtime.core.answers.slurm import JobAnswer, JobId
from trainer_runtime.core.protocol.desired import Desired
from trainer_runtime.host.files.files import read_json
from trainer_runtime.host.files.layout import RunFolder
from trainer_runtime.host.slurm.accounting import Accounted, ended_jobs
from trainer_runtime.host.slurm.faulty_nodes import (
    faulty_jobs,
    in_words,
    is_hopeless,
    node_of,
    note_faulty,
)
from trainer_runtime.host.slurm.folder_probe import forget_partition
from trainer_runtime.host.slurm.programs import SlurmError, run_program
from trainer_runtime.host.slurm.submitted import Line, note_job, submitted_lines

# Consecutive jobs without a newer verified checkpoint before the run is given up, as of sessions.
MOST_BARREN = 3
# The same of jobs that nobody can say of whether they began.
MOST_UNSEEN = 10
# Of a job whose node has no folder of the run: by `job.sh`, and by Slurm, which then can't write
# the job's output.
_NO_FOLDER = ("66:0", "0:53")
_NO_MODULE = "67:0"
_NO_ROOT = "folder_missing"


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
