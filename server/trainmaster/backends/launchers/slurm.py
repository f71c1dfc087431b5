"""The supervisor as a job of Slurm, submitted on a login node.

Job by job, as time limits have it: each is a session of the run. The batch script `job.sh` is in
the run's folder, which login and compute nodes share.
"""

from __future__ import annotations

import json
import posixpath
import signal
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from trainer_runtime.core.answers.slurm import (
    COMPLETING,
    RUNNING,
    WAITING,
    JobAnswer,
    JobEnd,
    JobId,
    SubmitAnswer,
)
from trainer_runtime.core.decoding import Fields
from trainer_runtime.core.protocol.command import command
from trainmaster.backends.hosts import Host
from trainmaster.backends.hosts.runtime_call import Failure, RuntimeCall, runtime_call
from trainmaster.backends.launchers.launcher import Abilities, Job, JobState

Answered = TypeVar("Answered")

# A controller that is down answers after ten seconds, and two questions may be asked.
_TIMEOUT_S = 60.0
# It also waits for steps on compute nodes, and cancels those that don't begin.
_CHECK_TIMEOUT_S = 150.0
_ABSENT = Job(JobState.ABSENT)
_STATES = {WAITING: JobState.WAITING, RUNNING: JobState.RUNNING}


@dataclass(frozen=True, slots=True)
class KnownJobs:
    """By folder, the newest job; and how jobs ended that were asked about, with their folders."""

    jobs: Mapping[str, Job]
    ends: Sequence[tuple[str, JobEnd]]


class SlurmLauncher:
    name = "slurm"
    abilities = Abilities(signals=True, queues=True, limits_time=True)

    async def submit(self, host: Host, folder: str) -> bool:
        return (await self.submit_job(host, folder)).started

    async def submit_job(self, host: Host, folder: str) -> SubmitAnswer:
        """As `submit`; also the job that there is now."""
        return await self._call(host, "submit", ["."], SubmitAnswer.of, folder=folder)

    async def check(self, host: Host, folder: str) -> str | None:
        """Ask Slurm whether it would take the job of the run in `folder`, and have it try whether
        compute nodes have that folder; the job is not queued. Returns why the latter could not be
        found out; None where it was.

        Raises:
            HostError: `JOB_REFUSED`, it would not; `FOLDER_NOT_SHARED`, they have not.
        """
        arguments = ["--check", "."]
        return await self._call(
            host, "submit", arguments, _untried, folder=folder, timeout_s=_CHECK_TIMEOUT_S
        )

    async def state(self, host: Host, folder: str) -> Job:
        return (await self._list(host, [folder], None, ["--fresh"])).jobs.get(folder, _ABSENT)

    async def jobs(self, host: Host, folders: Sequence[str]) -> Mapping[str, Job]:
        listed = await self._list(host, folders)
        return {folder: job for folder, job in listed.jobs.items() if job.is_alive}

    async def known(
        self,
        host: Host,
        folders: Sequence[str],
        about: Mapping[str, Sequence[JobId]],
        *,
        acts: bool = True,
        fresh: bool = False,
    ) -> KnownJobs:
        """As `jobs`, with those that have ended, for as long as Slurm remembers them. `about`: by
        folder, the numbers of jobs whose end is to be found out. Unless it `acts`, nothing is left
        on the host. `fresh`: not by a list of the last seconds."""
        options = [*(["--keep"] if acts else []), *(["--fresh"] if fresh else [])]
        return await self._list(host, folders, about, options, acts=acts)

    def log_path(self, folder: str) -> str:
        return posixpath.join(folder, "logs", "job.out")

    async def signal(self, host: Host, folder: str, number: signal.Signals) -> bool:
        return await self._end(host, folder, ["--signal", number.name])

    async def cancel(self, host: Host, folder: str) -> bool:
        return await self._end(host, folder, [])

    async def _end(self, host: Host, folder: str, options: Sequence[str]) -> bool:
        arguments = [*options, "--", folder]
        return await self._call(host, "end_job", arguments, lambda answer: answer.flag("found"))

    async def _list(
        self,
        host: Host,
        folders: Sequence[str],
        about: Mapping[str, Sequence[JobId]] | None = None,
        options: Sequence[str] = ("--keep",),
        *,
        acts: bool = True,
    ) -> KnownJobs:
        def listed(answer: Fields) -> KnownJobs:
            jobs = [JobAnswer.of(row) for row in answer.sections("jobs")]
            ends = [JobEnd.of(row) for row in answer.sections("ended")]
            return KnownJobs(
                {folders[row.place]: job_of(row) for row in jobs},
                [(folders[row.place], row) for row in ends],
            )

        places = {folder: place for place, folder in enumerate(folders)}
        wanted = [
            {"place": places[folder], "job_id": number}
            for folder, numbers in (about or {}).items()
            for number in numbers
        ]
        asked = json.dumps({"folders": list(folders), "about": wanted}).encode()
        return await self._call(host, "jobs", options, listed, stdin=asked, acts=acts)

    async def _call(
        self,
        host: Host,
        verb: str,
        arguments: Sequence[str],
        parse: Callable[[Fields], Answered],
        *,
        folder: str | None = None,
        stdin: bytes = b"",
        acts: bool = True,
        timeout_s: float = _TIMEOUT_S,
    ) -> Answered:
        failure = Failure(
            f"Slurm on {host.name} could not be used",
            f"{command('hosts check', host.name)} finds the cause.",
            code="SLURM_FAILED",
        )
        call = RuntimeCall(
            verb, arguments, failure, timeout_s, folder=folder, stdin=stdin, acts=acts
        )
        return await runtime_call(host, call, parse)


def _untried(answer: Fields) -> str | None:
    return answer.find_text("untried")


def job_of(answer: JobAnswer) -> Job:
    """Slurm's job as the port has it. An ended one is absent; its word is the reason, as is that
    of one that is about to end."""
    state = _STATES.get(answer.state, JobState.ABSENT)
    reason = answer.reason if state is JobState.WAITING else None
    if state is JobState.ABSENT or answer.word == COMPLETING:
        reason = answer.word
    return Job(state, reason, answer.job_id, answer.begin_t, answer.end_t, answer.alone)
