"""The port of what holds a run's supervisor on a host: a process, a container, a scheduler's job.

A *job* is one life of a run's supervisor, with all that it keeps running. The run's folder names
it, whose last part is the run's id: that is the job's tag wherever a launcher keeps tags.
"""

from __future__ import annotations

import signal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from trainmaster.backends.hosts import Host  # slow to import, and `status` asks nobody


class JobState(str, Enum):
    """`absent`: there is none, or it has ended. `waiting`: it will run once it is given a place."""

    ABSENT = "absent"
    WAITING = "waiting"
    RUNNING = "running"


@dataclass(frozen=True, slots=True)
class Job:
    """A run's newest job. `reason`: why it waits, or how it ended, in the launcher's own code;
    `number`: the launcher's own. Times are Unix seconds: `begin_t` is expected where it waits,
    `end_t` its time limit. `alone`: it waits, and no other job of this user runs."""

    state: JobState
    reason: str | None = None
    number: int | str | None = None
    begin_t: float | None = None
    end_t: float | None = None
    alone: bool = False

    @property
    def is_alive(self) -> bool:
        return self.state is not JobState.ABSENT


@dataclass(frozen=True, slots=True)
class Abilities:
    """Where launchers differ. `signals`: a job can be signalled. `queues`: a job may have to wait.
    `limits_time`: a job ends by the clock, and the next one continues."""

    signals: bool = False
    queues: bool = False
    limits_time: bool = False


class Launcher(Protocol):
    """Six verbs. Every one may be repeated, and raises `HostError` where the host refuses or can't
    be reached; then nothing is known of what it asked for."""

    name: str
    abilities: Abilities

    async def submit(self, host: Host, folder: str) -> bool:
        """Make sure that the run in `folder` has a job; True if this call has made it.

        Raises:
            HostError: `SUPERVISOR_DID_NOT_START`.
        """

    async def state(self, host: Host, folder: str) -> Job:
        """The run's job."""

    async def jobs(self, host: Host, folders: Sequence[str]) -> Mapping[str, Job]:
        """Those of the runs' folders that have a job now; one call, however many they are."""

    def log_path(self, folder: str) -> str:
        """The file in which the job's own output lies; the trainer's has another place."""

    async def signal(self, host: Host, folder: str, number: signal.Signals) -> bool:
        """Signal the job's supervisor; False without a job.

        Raises:
            HostError: `UNSUPPORTED`, jobs of this launcher take none.
        """

    async def cancel(self, host: Host, folder: str) -> bool:
        """End the run's job at once, with all that it keeps running; False where there is none.

        Nothing is saved. A run that is still wanted gets another job from the next `submit`, and
        continues from its last checkpoint; a stop is requested by `desired.json` instead.
        """
