"""The jobs of this user, as `squeue` lists them: once for all runs, at most every 20 seconds."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from trainer_runtime.core.answers.slurm import (
    COMPLETING,
    ENDED,
    ENDED_WORDS,
    RUNNING,
    TRAINMASTER,
    WAITING,
    JobAnswer,
    JobEnd,
    JobId,
    job_id_of,
    job_order,
    read_job_id,
)
from trainer_runtime.core.decoding import MAX_DOCUMENT_BYTES, decode_fields
from trainer_runtime.core.files.durable import write_atomic
from trainer_runtime.host.files.files import read_json
from trainer_runtime.host.slurm.accounting import Accounted, ended_jobs, is_off
from trainer_runtime.host.slurm.programs import SlurmError, run_program
from trainer_runtime.host.slurm.submitted import is_cancelled_here

_CANCELLED = "CANCELLED"
KEPT_S = 20.0
CACHE = "slurm_jobs.json"
# A list with a job that is about to end is soon out of date.
_KEPT_COMPLETING_S = 4.0
# The reason is last: only it may hold a bar.
_FORMAT = "%i|%j|%T|%S|%e|%N|%r"
_FIELDS = 7
_WAITING = frozenset(
    {"PENDING", "CONFIGURING", "REQUEUED", "REQUEUE_HOLD", "SPECIAL_EXIT", "RESV_DEL_HOLD"}
)
_NOTHING = frozenset({"None", "", "N/A"})


def jobs_of(asked: str, *, fresh: bool = False, keep: bool = False) -> dict[str, object]:
    """The newest job of each of `{"folders": [paths]}` that Slurm still knows; and how those of
    `{"about": [{"place", "job_id"}]}` have ended that are not alive.
    `fresh`: not by a list of the last seconds; `keep` a new list for the next call.

    Raises:
        SlurmError: it can't be asked; nothing is known then.
        DecodingError: something else was asked.
    """
    request = decode_fields(asked, "a request", max_bytes=MAX_DOCUMENT_BYTES)
    folders = [Path(folder) for folder in request.texts("folders")]
    if not folders:
        return {"jobs": [], "ended": []}
    about = [
        AskedJob(row.integer("place"), folders[row.integer("place")], job_id_of(row))
        for row in request.sections("about")
        if 0 <= row.integer("place") < len(folders)
    ]
    places = {folder.name: place for place, folder in enumerate(folders)}
    root = folders[0].parent.parent
    jobs = _jobs_of_all(_listed(root, 0.0 if fresh else KEPT_S, keep=keep), places)
    if {job_asked.job_id for job_asked in about} - {
        job.job_id for job in jobs
    }:  # submitted since, or purged
        jobs = _jobs_of_all(_listed(root, 0.0, keep=keep), places)
    return {
        "jobs": [job.to_dict() for job in newest_jobs(jobs)],
        "ended": [end.to_dict() for end in ends_of(jobs, about)],
    }


def jobs_by_name(root: Path, name: str) -> list[JobAnswer]:
    """All that Slurm knows of a name now, the newest last; `root` of the host, whose cache of the
    list this makes void."""
    return jobs_by_names(root, [name])


def jobs_by_names(root: Path, names: Sequence[str]) -> list[JobAnswer]:
    """The same of several; each job's `place` is that of its name."""
    (root / CACHE).unlink(missing_ok=True)
    places = {name: place for place, name in enumerate(names)}
    return _jobs(_squeue(f"--name={','.join(names)}"), places)


def kept_job(root: Path, name: str) -> JobAnswer | None:
    """A run's newest job by a list of the last seconds; None without such a list."""
    jobs = newest_jobs(_jobs(_cached_rows(root, KEPT_S) or (), {name: 0}))
    return jobs[0] if jobs else None


def newest_jobs(jobs: Iterable[JobAnswer]) -> list[JobAnswer]:
    """By place, the job that is alive, else the newest."""
    newest: dict[int, JobAnswer] = {}
    for job in jobs:
        earlier = newest.get(job.place)
        if earlier is None or _rank(job) > _rank(earlier):
            newest[job.place] = job
    return [newest[place] for place in sorted(newest)]


def _rank(job: JobAnswer) -> tuple[bool, tuple[int, ...]]:
    return job.is_alive, job_order(job.job_id)


def _listed(root: Path, within_s: float, *, keep: bool) -> list[list[str]]:
    rows = _cached_rows(root, within_s)
    if rows is None:
        rows = _squeue()
        if keep:
            write_atomic(root / CACHE, json.dumps({"t": time.time(), "rows": rows}).encode())
    return rows


def _cached_rows(root: Path, within_s: float) -> list[list[str]] | None:
    kept = read_json(root / CACHE) or {}
    t, rows = kept.get("t"), kept.get("rows")
    if not isinstance(t, float) or not isinstance(rows, list):
        return None
    if any(isinstance(row, list) and COMPLETING in row for row in rows):
        within_s = min(within_s, _KEPT_COMPLETING_S)
    return rows if 0.0 <= time.time() - t < within_s else None


def _squeue(*chosen: str) -> list[list[str]]:
    user = f"--user={os.getuid()}"
    shape = ("--noheader", "--all", "--states=all", "--array", f"--format={_FORMAT}")
    text = run_program("squeue", *shape, user, *chosen)
    rows = [line.split("|", _FIELDS - 1) for line in text.splitlines()]
    return [row for row in rows if len(row) == _FIELDS and read_job_id(row[0])]


def _jobs_of_all(rows: Sequence[Sequence[str]], places: dict[str, int]) -> list[JobAnswer]:
    """By a list of all jobs of this user."""
    alone = all(len(row) == _FIELDS and _state(row[2]) != RUNNING for row in rows)
    return [replace(job, alone=alone and job.state == WAITING) for job in _jobs(rows, places)]


def _jobs(rows: Iterable[Sequence[str]], places: dict[str, int]) -> list[JobAnswer]:
    return [job for row in rows if (job := _job(row, places)) is not None]


def _job(row: Sequence[str], places: dict[str, int]) -> JobAnswer | None:
    job_id = read_job_id(row[0]) if row else None
    if len(row) != _FIELDS or row[1] not in places or job_id is None:
        return None
    _, name, word, begin, end, nodes, reason = row
    return JobAnswer(
        place=places[name],
        job_id=job_id,
        state=_state(word),
        word=word,
        reason=None if reason in _NOTHING else reason[:120],
        begin_t=_time(begin),
        end_t=_time(end),
        has_begun=nodes not in _NOTHING,
    )


def _state(word: str) -> str:
    return ENDED if word in ENDED_WORDS else WAITING if word in _WAITING else RUNNING


def _time(text: str) -> float | None:
    return float(text) if text.isdigit() and int(text) > 0 else None


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
