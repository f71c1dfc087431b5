"""Supervisors as threads of this process: so many at once, the others wait for their turn."""

from __future__ import annotations

import os
import posixpath
import signal
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from trainer_runtime.core.files.durable import is_locked, try_lock
from trainer_runtime.core.policy.endings import Exit
from trainer_runtime.core.protocol.command import command
from trainer_runtime.host.files.files import read_json, write_json
from trainer_runtime.host.files.layout import RunFolder
from trainer_runtime.host.processes.identity import ProcessIdentity, identify, is_alive
from trainer_runtime.host.processes.processes import Observation
from trainer_runtime.host.supervise.supervisor import Supervisor
from trainer_runtime.host.watch.telemetry import Telemetry
from trainmaster.backends.debug.trainer import SimulatedTrainer
from trainmaster.backends.hosts import Host
from trainmaster.backends.launchers import Abilities, Job, JobState
from trainmaster.errors.errors import HostError

# Between two ticks of a supervisor; what each other one adds, so that all share a little of a core.
_POLL_S, _POLL_S_FOR_OTHERS = 0.02, 0.1
_ENDS_WITHIN_S = 10.0
# Each has two threads and five descriptors of a process that serves others.
MOST_AT_ONCE = 16


class InProcessLauncher:
    name = "in_process"
    abilities = Abilities()

    async def submit(self, host: Host, folder: str) -> bool:
        return _SUPERVISORS.add(folder)

    async def state(self, host: Host, folder: str) -> Job:
        return Job(JobState.RUNNING if await self.jobs(host, [folder]) else JobState.ABSENT)

    async def jobs(self, host: Host, folders: Sequence[str]) -> Mapping[str, Job]:
        return {folder: Job(JobState.RUNNING) for folder in folders if _SUPERVISORS.has(folder)}

    def log_path(self, folder: str) -> str:
        return posixpath.join(folder, "logs", "supervisor.err")

    async def signal(self, host: Host, folder: str, number: signal.Signals) -> bool:
        raise HostError(
            "UNSUPPORTED",
            f"Supervisors on {host.name} are threads, which take no signals.",
            f"Stop the run: {command('stop', 'RUN')}.",
        )

    async def cancel(self, host: Host, folder: str) -> bool:
        return _SUPERVISORS.cancel(folder)


class _Supervisors:
    """Those of this process. A run that waits is known to it alone: another process may begin it
    meanwhile."""

    def __init__(self) -> None:
        self._mutex = threading.RLock()
        self._living: dict[str, _SupervisorThread] = {}
        self._waiting: dict[str, None] = {}

    def add(self, folder: str) -> bool:
        """Have a run supervised; False where it is already.

        Raises:
            OSError: its folder can't be used.
        """
        with self._mutex:
            if folder in self._waiting:
                return False
            if len(self._living) < MOST_AT_ONCE:
                return self._begin(folder)
            if is_locked(RunFolder(Path(folder)).supervisor_lock):
                return False
            self._waiting[folder] = None
            return True

    def has(self, folder: str) -> bool:
        """Whether a run is supervised, by whichever process, or waits for that here."""
        with self._mutex:
            return folder in self._waiting or is_locked(RunFolder(Path(folder)).supervisor_lock)

    def cancel(self, folder: str) -> bool:
        """End a run's supervisor; False where this process has none."""
        with self._mutex:
            if folder in self._waiting:
                del self._waiting[folder]
                return True
            thread = self._living.get(folder)
        if thread is None:
            return False
        thread.cancelled.set()
        thread.join(_ENDS_WITHIN_S)
        return True

    def pause_s(self) -> float:
        """How long each of them rests between two ticks."""
        return max(_POLL_S, _POLL_S_FOR_OTHERS * (len(self._living) - 1))

    def ended(self, folder: str) -> None:
        """Begin what waited for this one's end."""
        with self._mutex:
            self._living.pop(folder, None)
            while self._waiting and len(self._living) < MOST_AT_ONCE:
                following = next(iter(self._waiting))
                del self._waiting[following]
                with suppress(OSError):  # its folder was removed meanwhile
                    self._begin(following)

    def _begin(self, folder: str) -> bool:
        run = RunFolder(Path(folder))
        lock = try_lock(run.supervisor_lock)
        if lock is None:
            return False
        thread = _SupervisorThread(run, lock)
        thread.start()
        self._living[folder] = thread
        return True


class _SupervisorThread(threading.Thread):
    """Supervises to the end, as a host does; the run's folder may be removed at any time."""

    def __init__(self, run: RunFolder, lock: int) -> None:
        super().__init__(name=f"supervisor-{run.run_id}", daemon=True)
        self.run_folder = run
        self.cancelled = threading.Event()
        self._lock: int | None = lock

    def run(self) -> None:
        run = self.run_folder
        try:
            while self._lock is not None:
                processes = SimulatedProcesses(run.root)
                supervisor = Supervisor(
                    run, processes, time.time, Telemetry(run.root), window=False
                )
                while not (self.cancelled.is_set() or supervisor.tick()):
                    self.cancelled.wait(_SUPERVISORS.pause_s())
                supervisor.close()
                if self.cancelled.is_set():
                    processes.kill_all()
                    return
                os.close(self._lock)
                continues = supervisor.has_newer_request()
                self._lock = try_lock(run.supervisor_lock) if continues else None
        except OSError:
            return
        finally:
            if self._lock is not None:
                os.close(self._lock)
            _SUPERVISORS.ended(str(run.root))


_SUPERVISORS = _Supervisors()


class SimulatedProcesses:
    """Implements the supervisor's `Processes`."""

    def __init__(self, folder: Path) -> None:
        self._run = RunFolder(folder)
        self._trainers: dict[int, SimulatedTrainer] = {}

    def prepare(self, attempt: int) -> None:
        self._run.attempt(attempt).setup_log.write_text("nothing to prepare: simulated\n")

    def prepared(self, attempt: int) -> int | None:
        return 0

    def start(self, attempt: int) -> None:
        if attempt in self._trainers:
            return
        process = identify(os.getpid())
        described = process.to_dict() if process else None
        write_json(self._run.attempt(attempt).process, {"hold": described, "trainer": described})
        self._trainers[attempt] = SimulatedTrainer(self._run.root, attempt)
        self._trainers[attempt].start()

    def observe(self, attempt: int) -> Observation:
        folder = self._run.attempt(attempt)
        living = self._lives(attempt)
        end = read_json(folder.exit)
        if end is not None:
            return Observation("ended", Exit(end.get("code"), end.get("signal")))
        if living:
            return Observation("running")
        if folder.process.exists():
            return Observation("ended", Exit(None, None))  # its process went before it
        return Observation("absent")

    def terminate(self, attempt: int) -> None:
        if attempt in self._trainers:
            self._trainers[attempt].asked_to_end.set()

    def kill(self, attempt: int) -> None:
        if attempt in self._trainers:
            self._trainers[attempt].killed.set()

    def kill_all(self) -> None:
        for trainer in self._trainers.values():
            trainer.killed.set()

    def _lives(self, attempt: int) -> bool:
        if attempt in self._trainers:
            return self._trainers[attempt].is_alive()
        data = read_json(self._run.attempt(attempt).process)
        if data is None or not isinstance(data.get("trainer"), dict):
            return False
        process = ProcessIdentity.from_dict(data["trainer"])
        return process.pid != os.getpid() and is_alive(process)
