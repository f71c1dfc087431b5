"""How jobs of runs ended: by the controller's list, and by accounting where that says more."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from trainer_runtime.core.answers.slurm import TRAINMASTER, JobAnswer, JobEnd, JobId
from trainer_runtime.host.slurm.accounting import Accounted, ended_jobs, is_off
from trainer_runtime.host.slurm.programs import SlurmError
from trainer_runtime.host.slurm.submitted import is_cancelled_here

_CANCELLED = "CANCELLED"


@dataclass(frozen=True, slots=True)
class AskedJob:
    """A job of the run in `folder`, which has `place` among those asked about."""

    place: int
    folder: Path
    job_id: JobId


def ends_of(listed: Iterable[JobAnswer], asked: Sequence[AskedJob]) -> list[JobEnd]:
    """Of those asked about that are not alive by the list. Accounting is asked, once, where the
    list has a job no more, or cannot say who cancelled it."""
    by_number = {job.job_id: job for job in listed}
    ended = [asked_job for asked_job in asked if not _is_alive(by_number.get(asked_job.job_id))]
    unclear = [
        asked_job.job_id for asked_job in ended if _is_unclear(by_number.get(asked_job.job_id))
    ]
    accounted, may_follow = _accounted(unclear)
    return [
        _end(
            asked_job,
            by_number.get(asked_job.job_id),
            accounted.get(asked_job.job_id),
            may_follow=may_follow,
        )
        for asked_job in ended
    ]


def _is_alive(job: JobAnswer | None) -> bool:
    return job is not None and job.is_alive


def _is_unclear(job: JobAnswer | None) -> bool:
    return job is None or job.word == _CANCELLED


def _accounted(numbers: Sequence[JobId]) -> tuple[dict[JobId, Accounted], bool]:
    """What accounting has, and whether it may have more later."""
    try:
        return ended_jobs(numbers), True
    except SlurmError as error:
        return {}, not is_off(error)


def _end(
    asked: AskedJob, listed: JobAnswer | None, accounted: Accounted | None, *, may_follow: bool
) -> JobEnd:
    by = accounted.by if accounted is not None and accounted.name == asked.folder.name else None
    if is_cancelled_here(asked.folder, asked.job_id):
        by = TRAINMASTER
    if accounted is not None and accounted.name == asked.folder.name:
        return JobEnd(
            asked.place,
            asked.job_id,
            accounted.word,
            by,
            accounted.begin_t,
            accounted.end_t,
            is_final=True,
        )
    if listed is None:
        return JobEnd(asked.place, asked.job_id, by=by, is_final=not may_follow)
    begin_t = listed.begin_t if listed.has_begun else None
    is_final = not (may_follow and _is_unclear(listed))
    return JobEnd(
        asked.place, asked.job_id, listed.word, by, begin_t, listed.end_t, is_final=is_final
    )
