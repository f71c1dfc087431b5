"""The backend of a cluster: files on the login node, supervisors in jobs of compute nodes."""

from __future__ import annotations

import asyncio
import json
import posixpath
import time
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Protocol

from trainer_runtime.core.answers.slurm import COMPLETING, ClusterAnswer, SubmitAnswer
from trainer_runtime.core.decoding import MAX_DOCUMENT_BYTES, decode_fields
from trainer_runtime.core.protocol.command import command
from trainmaster.backends.capabilities import EndFinder, JobRenewer
from trainmaster.backends.follower import Followed, Follower, News
from trainmaster.backends.hosted import HostedBackend
from trainmaster.backends.hosts import Host
from trainmaster.backends.hosts.runtime_call import HOST_ADVISES
from trainmaster.backends.hosts.tree_files import TreeFile
from trainmaster.backends.launchers import Job, JobState
from trainmaster.backends.launchers.slurm import SlurmLauncher, job_of
from trainmaster.backends.slurm.chain import (
    after_submission,
    changed_lines,
    is_soon_known,
    unsettled,
)
from trainmaster.backends.slurm.cluster import (
    another_root,
    chosen_partition,
    node_facts,
    read_cluster,
)
from trainmaster.errors.errors import HostError
from trainmaster.store.control.slurm import Asked, JobLine, JobNote, Refusal, SlurmRecords
from trainmaster.store.host_record import HostRecord

if TYPE_CHECKING:
    from trainer_runtime.core.diagnosis.stacks.report import InspectionReport
    from trainmaster.plan.facts import HostFacts

# How long a command that reads once waits for a controller: one that is down, `squeue` gives up
# after ten seconds. One that gave no answer before is waited for less.
_ANSWERS_WITHIN_S, _ANSWERS_AGAIN_WITHIN_S = 8.0, 3.0
# As often as the login node itself asks Slurm.
_ASK_EVERY_S = 20.0
# While it is not known how a job has ended: accounting hears of it a little later.
_ASK_AGAIN_S = 5.0
# A question that was given up sooner says nothing of the controller, or of one that was silent
# before.
_SILENT_S, _STILL_SILENT_S = 5.0, 1.0
_CONFIG, _SCRIPT = "config.json", "job.sh"
_UNREACHABLE, _NOT_SHARED = "SLURM_UNREACHABLE", "FOLDER_NOT_SHARED"
# Between two submissions that Slurm refuses.
_PAUSE_S, _LONGEST_PAUSE_S = 30.0, 1800.0


class SlurmBackend(HostedBackend, EndFinder, JobRenewer):
    """A host whose launcher queues: what Slurm says of a run's job is kept in `records`."""

    runs_no_models = "A login node of Slurm is reached here, which is for no computing."

    def __init__(
        self,
        host: Host,
        record: HostRecord,
        records: SlurmRecords,
        recorded: Callable[[str], str | None],
    ) -> None:
        self._slurm = SlurmLauncher()
        super().__init__(host, self._slurm, multiplexed=True, recorded=recorded)
        self._options = record
        self._records = records
        self.ask_every_s = _ASK_EVERY_S

    async def cluster(self) -> ClusterAnswer:
        """The cluster's partitions."""
        return await read_cluster(self._host, self._options)

    async def facts(self, python: str | None) -> HostFacts:
        """Of the nodes that jobs get, by Slurm; disks and interpreter are the login node's.

        Raises:
            HostError: `PARTITION_UNKNOWN`, `ACCOUNT_REFUSED`; what Slurm refuses with.
        """
        cluster = await self.cluster()
        partition = chosen_partition(self._options, cluster)
        login = await super().facts(python)
        return node_facts(login, self._options, partition, cluster.used_up)

    async def place(
        self, run_id: str, files: Mapping[str, bytes], executable: frozenset[str]
    ) -> None:
        """Not where Slurm would refuse the job: accounts and their limits it alone knows. Nor where
        its compute nodes lack the root."""
        await super().place(run_id, files, executable)
        await self._refuse_job(run_id)

    async def put_run(self, run_id: str, files: Sequence[TreeFile]) -> None:
        """As `place`."""
        await super().put_run(run_id, files)
        await self._refuse_job(run_id)

    async def renew_job(self, run_id: str, job: Mapping[str, Any], script: bytes) -> None:
        folder = await self.folder(run_id)
        paths = [posixpath.join(folder, name) for name in (_CONFIG, _SCRIPT)]
        former = [await self._host.read(path, 0, MAX_DOCUMENT_BYTES) for path in paths]
        config = decode_fields(former[0], _CONFIG, max_bytes=MAX_DOCUMENT_BYTES).values
        renewed = (json.dumps({**config, "slurm": dict(job)}, indent=2).encode(), script)
        try:
            for path, data in zip(paths, renewed, strict=True):
                await self._host.put_file(path, data, mode=0o644)
            await self._check(run_id, folder)
        except BaseException:
            for path, data in zip(paths, former, strict=True):
                await self._host.put_file(path, data, mode=0o644)
            raise

    async def _refuse_job(self, run_id: str) -> None:
        try:
            await self._check(run_id, await self.folder(run_id))
        except HostError as error:
            if not error.unanswered:
                await self.remove(run_id, ["."])
            raise

    async def _check(self, run_id: str, folder: str) -> None:
        try:
            untried = await self._slurm.check(self._host, folder)
        except HostError as error:
            if error.code != _NOT_SHARED:
                raise
            fix = f"Add the host again with a root that they share: {another_root(self._options)}."
            raise HostError(_NOT_SHARED, error.message, fix, field="host") from error
        self._records.put_untried(run_id, untried)

    async def start(self, run_id: str) -> bool:
        answer = await self._submit(run_id)
        self._records.forget_questions(run_id)
        now, before = time.time(), self._records.job(run_id)
        if answer.job is not None:
            note = _note(job_of(answer.job), now)
        else:  # nothing is to be trained: the login node answers
            number = answer.cancelled or (None if before is None else before.number)
            note = JobNote(JobState.ABSENT.value, now, number=number)
        self._records.put(run_id, note)
        lines = self._records.jobs(run_id)
        changed = after_submission(lines, note, answer, now)
        if changed != lines:
            self._records.put_jobs({run_id: changed})
        return answer.started

    async def _submit(self, run_id: str) -> SubmitAnswer:
        """Raises: HostError: also where Slurm refuses or is silent, which is kept."""
        folder = await self.folder(run_id)
        await self._host.size(folder)  # whose silence is not Slurm's
        began_s = time.monotonic()
        try:
            answer = await self._slurm.submit_job(self._host, folder)
        except asyncio.CancelledError:
            self.note_silence(time.monotonic() - began_s)
            raise
        except HostError as error:
            if error.code == _UNREACHABLE:
                self._note_no_answer(time.time(), error.code)
            elif not error.unanswered:
                self._note_refusal(run_id, error)
            raise
        self._records.forget_refusal(run_id)
        return answer

    def _note_refusal(self, run_id: str, error: HostError) -> None:
        now, before = time.time(), self._records.refusal(run_id)
        count = 1 if before is None else before.count + 1
        pause_s = min(_PAUSE_S * 2.0 ** min(count - 1, 10), _LONGEST_PAUSE_S)
        if error.code == "JOB_REFUSED":  # only a run without a job is given one
            job = self._records.job(run_id)
            number = None if job is None else job.number
            self._records.put(run_id, JobNote(JobState.ABSENT.value, now, number=number))
        words = error.message.partition(HOST_ADVISES)[0]
        self._records.put_refusal(run_id, Refusal(words, count, now + pause_s))

    async def supervised(self, run_ids: Sequence[str]) -> frozenset[str]:
        jobs = await self.ask(run_ids)
        return frozenset(run_id for run_id, job in jobs.items() if job.is_alive)

    def is_due(self) -> bool:
        asked = self._records.asked(self.name)
        return asked is None or not 0.0 <= time.time() - asked.t < self.ask_every_s

    def has_begun(self, run_ids: Iterable[str]) -> bool:
        asked = self._records.asked(self.name)
        if asked is not None and 0.0 <= time.time() - asked.t < _ASK_AGAIN_S:
            return False
        notes = [self._records.job(run_id) for run_id in run_ids]
        return any(note is not None and note.state == JobState.WAITING.value for note in notes)

    async def read_jobs(self, run_ids: Sequence[str]) -> None:
        await self.ask(run_ids, acts=False)

    async def learn_ends(self, run_ids: Sequence[str]) -> None:
        await self.ask(run_ids, acts=False, of_ended=True)

    def is_silent(self) -> bool:
        asked = self._records.asked(self.name)
        return asked is not None and asked.error is not None

    def note_silence(self, since_s: float) -> None:
        if since_s >= (_STILL_SILENT_S if self.is_silent() else _SILENT_S):
            self._note_no_answer(time.time(), _UNREACHABLE)

    def _note_no_answer(self, t: float, code: str) -> None:
        before = self._records.asked(self.name)
        known_t = None if before is None else before.known_t
        self._records.note_asked(self.name, Asked(t, known_t, code))

    async def ask(
        self, run_ids: Sequence[str], *, acts: bool = True, of_ended: bool = False
    ) -> Mapping[str, Job]:
        """What Slurm knows of the runs' jobs; kept for those that read. `acts`: it may also leave
        something on the host: the runtime, a list for the next submission. `of_ended`: these runs
        have ended, so that the next question for the others is due as before.

        Raises:
            HostError: it gives no answer, which is kept, too.
        """
        by_folder = {await self.folder(run_id): run_id for run_id in run_ids}
        now = time.time()
        about = {
            folder: numbers
            for folder, run_id in by_folder.items()
            if (numbers := unsettled(self._records.jobs(run_id)))
        }
        try:
            answer = await self._slurm.known(
                self._host, list(by_folder), about, acts=acts, fresh=of_ended
            )
        except HostError as error:
            if not error.unanswered:  # a link that breaks is not Slurm's silence
                self._note_no_answer(now, error.code)
            raise
        jobs = {by_folder[folder]: job for folder, job in answer.jobs.items()}
        lines = {run_id: self._records.jobs(run_id) for run_id in run_ids}  # one may be new
        notes = {run_id: _note(job, now) for run_id, job in jobs.items()}
        changes = {**self._purged(run_ids, jobs, now), **notes}
        newer = {run_id for run_id in changes if self._was_submitted_since(run_id, now)}
        self._records.put_all({run: note for run, note in changes.items() if run not in newer})
        ends = [(by_folder[folder], end) for folder, end in answer.ends]
        changed = changed_lines(lines, notes, ends, now)
        self._records.put_jobs(changed)
        if not of_ended:
            self._note_answer(jobs, {**lines, **changed}, now)
        return jobs

    def _note_answer(
        self, jobs: Mapping[str, Job], lines: Mapping[str, Sequence[JobLine]], now: float
    ) -> None:
        job_lines = [line for of_run in lines.values() for line in of_run]
        is_ending = any(job.reason == COMPLETING for job in jobs.values())
        is_soon = is_ending or is_soon_known(job_lines, now)
        self.ask_every_s = _ASK_AGAIN_S if is_soon else _ASK_EVERY_S
        self._records.note_asked(self.name, Asked(now, now))

    def _was_submitted_since(self, run_id: str, t: float) -> bool:
        """While Slurm was asked, which then may not have known of it."""
        note = self._records.job(run_id)
        return note is not None and note.t > t

    def _purged(
        self, run_ids: Sequence[str], jobs: Mapping[str, Job], now: float
    ) -> dict[str, JobNote]:
        """Of jobs that Slurm's controller no longer lists, which have ended; how, accounting says,
        else the journal."""
        notes = {run_id: self._records.job(run_id) for run_id in run_ids if run_id not in jobs}
        return {
            run_id: replace(note, t=now)
            if note.state == JobState.ABSENT.value
            else JobNote(JobState.ABSENT.value, now, number=note.number)
            for run_id, note in notes.items()
            if note is not None
        }

    @asynccontextmanager
    async def follower(self) -> AsyncIterator[Follower]:
        async with super().follower() as files:
            jobs = JobsFollower(self, files)
            try:
                yield jobs
            except BaseException:
                await jobs.abandon()
                raise
            await jobs.settle()

    async def inspect(
        self, run_id: str, attempt: int, *, allow_py_spy: bool = False
    ) -> InspectionReport:
        raise HostError(
            "UNSUPPORTED",
            f"The processes of {run_id} run on a compute node of {self.name}, not on its login "
            "node.",
            f"Stalls are detected there by themselves, with stacks: {command('diagnose', run_id)}.",
        )


def _note(job: Job, t: float) -> JobNote:
    return JobNote(job.state.value, t, job.reason, job.number, job.begin_t, job.end_t, job.alone)


class Asker(Protocol):
    """Who asks Slurm, and keeps the answers."""

    def is_due(self) -> bool:
        """Whether the last answer is old."""

    def has_begun(self, run_ids: Iterable[str]) -> bool:
        """Whether one of these, which were just heard of, has a job that waits by what is known."""

    def is_silent(self) -> bool:
        """Whether there was no answer the last time."""

    async def read_jobs(self, run_ids: Sequence[str]) -> None:
        """Ask for the runs' jobs; keeps the answer, or that there is none.

        Raises:
            HostError: there is none.
        """

    def note_silence(self, since_s: float) -> None:
        """Note that Slurm was asked for so many seconds in vain, where that is long."""


class JobsFollower:
    """Files never wait for a controller: it is asked in a task of its own."""

    def __init__(self, asker: Asker, files: Follower) -> None:
        self._asker = asker
        self._files = files
        self._asking: asyncio.Task[None] | None = None
        self._began_s = 0.0

    async def copy_new(self, placements: Mapping[str, Followed]) -> News:
        news = await self._files.copy_new(placements)
        if self._asking is not None and self._asking.done():
            done, self._asking = self._asking, None
            done.result()
        is_due = self._asker.is_due() or self._asker.has_begun(news.changed)
        if self._asking is None and placements and is_due:
            self._began_s = time.monotonic()
            self._asking = asyncio.create_task(self._ask(list(placements)))
        return news

    async def settle(self) -> None:
        """Wait for an answer that is due, within bounds, once the files' news are taken in."""
        if self._asking is None:
            return
        bound_s = _ANSWERS_AGAIN_WITHIN_S if self._asker.is_silent() else _ANSWERS_WITHIN_S
        try:
            await asyncio.wait({self._asking}, timeout=bound_s)
        finally:
            if not self._asking.done():
                self._asker.note_silence(time.monotonic() - self._began_s)
            await self.abandon()

    async def abandon(self) -> None:
        """End what still asks.

        Raises:
            StorageError, sqlite3.Error: the home can't be used.
        """
        asking, self._asking = self._asking, None
        if asking is not None:
            asking.cancel()
            with suppress(asyncio.CancelledError):
                await asking

    async def _ask(self, run_ids: Sequence[str]) -> None:
        with suppress(HostError):  # a host that is away is noticed by its files
            await self._asker.read_jobs(run_ids)
