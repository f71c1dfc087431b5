"""Several runs that were launched together, as one array of jobs.

Each run's config names its array and its index there. `arrays/NAME/` of the host's root links each
index to its run's folder, which the script of a task enters. Once all runs are linked the array is
submitted, held: its tasks are given their runs' names, and released. From then on a task is found
by the name of its run, as every job; the run's next job is one of its own.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from trainer_runtime.core.answers.slurm import JobId
from trainer_runtime.core.files.durable import lock_within
from trainer_runtime.host.files.files import read_json, write_json
from trainer_runtime.host.files.layout import RunFolder
from trainer_runtime.host.slurm.programs import SlurmError, run_program
from trainer_runtime.host.slurm.queue import jobs_by_name, jobs_by_names
from trainer_runtime.host.slurm.submitted import submitted_job

SCRIPT = "array.sh"
_LOCK_WAIT_S = 20.0
_HELD = "JobHeldUser"


@dataclass(frozen=True, slots=True)
class Array:
    """`index`: of the run that was asked about, among `size`; `at_once`: how many of its tasks may
    run at a time, None for all."""

    folder: Path
    index: int
    size: int
    at_once: int | None

    @property
    def note(self) -> Path:
        return self.folder / "submitted.json"

    @property
    def is_whole(self) -> bool:
        """Whether all runs are linked."""
        return all((self.folder / str(index)).is_symlink() for index in range(self.size))

    @property
    def runs(self) -> dict[int, RunFolder]:
        """Those that are linked and still have a folder, by index."""
        links = {index: self.folder / str(index) for index in range(self.size)}
        return {index: RunFolder(path.resolve()) for index, path in links.items() if path.exists()}


def open_array(run: RunFolder) -> Array | None:
    """The array that a run's first job is a task of; None where there is none, or its tasks have
    been released."""
    section = ((read_json(run.config) or {}).get("slurm") or {}).get("array")
    if not isinstance(section, dict):
        return None
    folder = run.host_root / "arrays" / section["name"]
    array = Array(folder, section["index"], section["size"], section.get("at_once"))
    return None if (read_json(array.note) or {}).get("released") else array


@contextmanager
def joined(array: Array, run: RunFolder) -> Iterator[bool]:
    """Link the run; inside, nobody else submits the array. Gives whether all its runs are linked.

    Raises:
        SlurmError: another call is submitting it.
    """
    array.folder.mkdir(parents=True, exist_ok=True)
    lock = lock_within(array.folder / ".lock", _LOCK_WAIT_S)
    if lock is None:
        raise SlurmError("SLURM_FAILED", "another call submits this run's array", "Try again.")
    try:
        with suppress(FileExistsError):
            (array.folder / str(array.index)).symlink_to(f"../../{run.runs.name}/{run.root.name}")
        yield array.is_whole
    finally:
        os.close(lock)


def submit_array(array: Array, wanted: Mapping[int, RunFolder]) -> int | None:
    """Give the runs in `wanted`, by index, a task each; the array's number, None without runs.

    May be repeated after any kill: an array that is held already is found by its name.

    Raises:
        SlurmError: Slurm refuses the array, and nothing is queued; or it can't be asked.
    """
    _remove_old(array.folder.parent)
    number = None
    if wanted:
        number = _known_number(array) or _submitted(array, wanted)
        write_json(array.note, {"job_id": number})
        _release(array, number, wanted)
    write_json(array.note, {"job_id": number, "released": True})
    return number


def _known_number(array: Array) -> int | None:
    """Of one whose submission was cut short."""
    noted = (read_json(array.note) or {}).get("job_id")
    if isinstance(noted, int):
        return noted
    alive = [job for job in jobs_by_name(_root(array), array.folder.name) if job.is_alive]
    return int(str(alive[0].job_id).partition("_")[0]) if alive else None


def _submitted(array: Array, wanted: Mapping[int, RunFolder]) -> int:
    for run in wanted.values():
        run.supervisor_errors.parent.mkdir(exist_ok=True)  # the folder of the task's output
    throttle = "" if array.at_once is None else f"%{array.at_once}"
    tasks = f"--array={','.join(map(str, sorted(wanted)))}{throttle}"
    script = f"{min(wanted)}/{SCRIPT}"
    try:
        output = run_program("sbatch", "--parsable", "--hold", tasks, script, folder=array.folder)
    except SlurmError as error:
        if error.refusal["code"] == "JOB_REFUSED":
            shutil.rmtree(array.folder, ignore_errors=True)
        raise
    return submitted_job(output)


def _release(array: Array, number: int, wanted: Mapping[int, RunFolder]) -> None:
    """Name the tasks by their runs, and let them begin.

    A task that is named is a record of its own at the controller: it alone can be cancelled while
    it waits, and accounting knows of it.
    """
    held = _held_tasks(array, wanted)
    names = [
        f"update jobid={number}_{index} jobname={wanted[index].root.name}\n"
        for index in sorted(wanted, reverse=True)  # the last to be named begins first
        if f"{number}_{index}" in held
    ]
    if not held:
        return
    try:
        run_program("scontrol", stdin=f"{''.join(names)}release {number}\n")
    except SlurmError as error:
        if error.refusal["code"] == "SLURM_UNREACHABLE":
            raise
        if _held_tasks(array, wanted):  # else somebody has cancelled one meanwhile
            run_program("scancel", str(number))
            shutil.rmtree(array.folder, ignore_errors=True)
            raise SlurmError("JOB_REFUSED", str(error), "Launch the runs one by one.") from error


def _held_tasks(array: Array, wanted: Mapping[int, RunFolder]) -> set[JobId]:
    """The tasks that nobody has released yet."""
    names = [array.folder.name, *(run.root.name for run in wanted.values())]
    jobs = jobs_by_names(_root(array), names)
    return {job.job_id for job in jobs if job.is_alive and job.reason == _HELD}


def _root(array: Array) -> Path:
    return array.folder.parent.parent


def _remove_old(arrays: Path) -> None:
    """Of arrays whose runs were all cleaned."""
    for folder in arrays.iterdir():
        links = [path for path in folder.glob("*") if path.is_symlink()]
        if links and not any(link.exists() for link in links):
            shutil.rmtree(folder, ignore_errors=True)
