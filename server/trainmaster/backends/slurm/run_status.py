"""The status of a run at Slurm, from its last known job and its journal. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from trainer_runtime.core.protocol.command import command
from trainer_runtime.core.protocol.desired import Desired
from trainer_runtime.core.protocol.figures import in_utc, spoken_duration
from trainer_runtime.core.protocol.states import DesiredState, RunState
from trainer_runtime.core.protocol.text import shown
from trainmaster.backends.launchers import JobState
from trainmaster.backends.sessions import SessionSummary, state_in_session
from trainmaster.backends.slurm.reasons import pending
from trainmaster.store.control.slurm import Asked, JobLine, JobNote, Refusal

BETWEEN_JOBS = "between_jobs"
_REFUSED = "slurm_refused"
_UNREACHABLE = "slurm_unreachable"
# A controller that was just silent is asked again by what reads, not by submissions.
_QUIET_S = 20.0
# A job whose supervisor has ended is listed as ended soon after: for so long, and so often, that is
# asked for.
_ENDS_WITHIN_S, _ENDING_EVERY_S = 30.0, 4.0
# Clocks are compared through a network.
_CLOCKS_APART_S = 2.0
# Slurm's words for how a job ended, of which only these say more than that it did.
_OUTCOMES = {
    "COMPLETED": "over",
    "CANCELLED": "cancelled",
    "TIMEOUT": "time_limit",
    "PREEMPTED": "preempted",
    "NODE_FAIL": "node_failed",
    "OUT_OF_MEMORY": "out_of_memory",
    "FAILED": "failed",
    "BOOT_FAIL": "node_failed",
    "DEADLINE": "time_limit",
}


@dataclass(frozen=True, slots=True)
class SlurmSessions:
    """`job`: None before the first was submitted. `asked`: when the cluster was. `heartbeat_t`: the
    supervisor's last sign of life, `now` by the same clock, which is `skew_s` ahead of this
    machine's. `over_t`: when a supervisor last noted, by that clock, that its job is nearly over.
    `chain`: all jobs, the oldest first. `refused`: the submission that Slurm refused. `gpus`: how
    many a job asks for. `array`: the one that the run's first job belongs to."""

    job: JobNote | None
    asked: Asked | None
    heartbeat_t: float | None
    now: float
    chain: Callable[[], Sequence[JobLine]] = tuple
    refused: Callable[[], Refusal | None] = lambda: None
    skew_s: float = 0.0
    over_t: float | None = None
    gpus: int = 0
    array: str | None = None

    files_travel = False
    lacks_data = False
    left_behind = None
    heard_t = 0.0
    needs = "its next job is submitted from here"

    @property
    def runs(self) -> bool:
        if self.job is None:
            return False
        known_t = self.job.t + self.skew_s + _CLOCKS_APART_S
        is_newer = self.heartbeat_t is not None and self.heartbeat_t > known_t
        return self.job.state == JobState.RUNNING.value or is_newer

    @property
    def alive(self) -> bool:
        waits = self.job is not None and self.job.state == JobState.WAITING.value
        return waits or self.runs

    @property
    def wants_start(self) -> bool:
        if self.alive and not self._ends_now:
            return False
        if self._silent_since is not None and self._is_quiet:
            return False
        return not self.is_paused

    @property
    def _ends_now(self) -> bool:
        """Whether the supervisor of the running job has ended moments ago, which Slurm lists before
        long; not while that was just asked for."""
        if self.job is None or self.over_t is None or self.job.state != JobState.RUNNING.value:
            return False
        is_of_this = self.over_t > (self.job.begin_t or self.over_t)
        is_recent = self.now - self.over_t < _ENDS_WITHIN_S
        return is_of_this and is_recent and self._here_t - self.job.t >= _ENDING_EVERY_S

    @property
    def is_paused(self) -> bool:
        refusal = self.refused()
        return refusal is not None and self._here_t < refusal.again_t

    @property
    def _here_t(self) -> float:
        """Now, by this machine's clock."""
        return self.now - self.skew_s

    @property
    def _is_quiet(self) -> bool:
        return self.asked is not None and 0.0 <= self._here_t - self.asked.t < _QUIET_S

    def state(self, recorded: RunState, desired: Desired, heartbeat_t: float | None) -> RunState:
        if desired.state is DesiredState.STOPPED and self.alive and not self.runs:
            return RunState.STOPPING  # its job is still to be taken from the queue
        if desired.state is DesiredState.STOPPED:
            return recorded
        begun_t = 0.0 if self.job is None else self.job.begin_t or 0.0
        return state_in_session(recorded, heartbeat_t, begun_t if self.runs else None)

    @property
    def reason(self) -> str:
        if self._silent_since is not None:
            return _UNREACHABLE
        if self.alive and self.job:
            return pending(self.job.reason, alone=self.job.alone).code
        return BETWEEN_JOBS if self.refused() is None else _REFUSED

    @property
    def detail(self) -> str | None:
        refusal = self.refused() if self.reason == _REFUSED else None
        return None if refusal is None else shown(refusal.words.encode(errors="replace"))

    @property
    def waits(self) -> str:
        since_t = self._silent_since
        if since_t is not None:
            age = spoken_duration(max(1.0, self._here_t - since_t))
            return (
                f"Slurm's controller does not answer; what is known is {age} old, and nothing is "
                f"submitted until it does. {command('tick')} tries again."
            )
        refusal = None if self.alive else self.refused()
        if refusal is not None:
            return (
                "Slurm refuses the next job, in the words beside the reason. Change what it "
                f"refuses; the job is submitted again after {in_utc(refusal.again_t)}, and by "
                f"{command('tick')} at once. {command('stop', '{run}')} ends the run."
            )
        if self.job is None and self.array is not None:
            return (
                "Its array is submitted once all runs of it are on the cluster: "
                f"{command('runs', '--label', f'array={self.array}')} lists them, "
                f"{command('tick')} sends what is missing."
            )
        if self.job is None or not self.alive:
            return (
                f"{command('tick')} submits the next job; "
                f"{command('wait', '{run}', '--until', 'end')} too."
            )
        why = pending(self.job.reason, alone=self.job.alone)
        remedy, begins = why.remedy_for(self.gpus), in_utc(self.resumes_at)
        if why.never_begins:
            return f"Job {self.job.number} never begins like this: {why.meaning} {remedy}"
        expected = f" Slurm expects it to start at {begins}." if begins else ""
        return (
            f"Job {self.job.number} waits: {why.meaning}{expected} {remedy} "
            f"{command('wait', '{run}', '--until', 'running,end', '--timeout', '3600')}."
        )

    @property
    def _silent_since(self) -> float | None:
        """Since when a cluster that was asked gives no answer."""
        if self.asked is None or self.asked.error is None:
            return None
        return self.asked.known_t or self.asked.t

    def data_generation(self, desired: Desired) -> int:
        return desired.generation

    @property
    def resumes_at(self) -> float | None:
        waits = self.job is not None and self.alive and not self.runs
        return self.job.begin_t if waits and self.job is not None else None

    @property
    def newest(self) -> SessionSummary | None:
        job = self.job
        if job is None or job.number is None:
            return None
        if job.state == JobState.ABSENT.value:
            job_line = next((line for line in self.chain() if line.number == job.number), None)
            if job_line is not None and job_line.word is not None:
                return _summary(job_line)
            return SessionSummary(job.number, outcome=_OUTCOMES.get(job.reason or "", "over"))
        avoided = next(
            (chain_line.avoided for chain_line in self.chain() if chain_line.number == job.number),
            None,
        )
        said = None if avoided is None else f"kept from {shown(avoided.encode(errors='replace'))}"
        return SessionSummary(job.number, job.end_t if self.runs else None, detail=said)

    def ended_with(self, begin_t: float, next_t: float | None) -> SessionSummary | None:
        """By when jobs ran: clocks of a cluster are in step, or its nodes would not be trusted."""
        for line in reversed(self.chain()):
            if line.word is None or line.begin_t is None or line.end_t is None:
                continue
            is_last = next_t is None or next_t > line.end_t
            if line.begin_t <= begin_t <= line.end_t:
                return _summary(line) if is_last else None
        return None

    def refuse_stop(self, run_id: str) -> None:
        """A job that waits is cancelled, and one that runs saves first."""


def _summary(line: JobLine) -> SessionSummary:
    who = None if line.by is None else f"by {shown(line.by.encode(errors='replace'))}"
    outcome = _OUTCOMES.get(line.word or "", "over")
    return SessionSummary(line.number, outcome=outcome, detail=who)
