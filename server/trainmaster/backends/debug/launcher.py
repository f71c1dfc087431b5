"""Supervisors as threads of this process."""

from __future__ import annotations

import os
import posixpath
import signal
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from trainer_runtime.box.files.layout import RunFolder
from trainer_runtime.box.supervise.supervisor import Supervisor
from trainer_runtime.box.watch.telemetry import Telemetry
from trainer_runtime.core.files.durable import is_locked, try_lock
from trainmaster.backends.debug.processes import SimulatedProcesses
from trainmaster.backends.hosts import Host
from trainmaster.backends.launchers import Abilities, Job, JobState
from trainmaster.words.errors import HostError

_POLL_S = 0.02
_ENDS_WITHIN_S = 10.0


class InProcessLauncher:
    name = "in_process"
    abilities = Abilities()

    async def submit(self, host: Host, folder: str) -> bool:
        run = RunFolder(Path(folder))
        lock = try_lock(run.supervisor_lock)
        if lock is None:
            return False
        _SupervisorThread(run, lock).start()
        return True

    async def state(self, host: Host, folder: str) -> Job:
        return Job(JobState.RUNNING if await self.jobs(host, [folder]) else JobState.ABSENT)

    async def jobs(self, host: Host, folders: Sequence[str]) -> Mapping[str, Job]:
        return {
            folder: Job(JobState.RUNNING)
            for folder in folders
            if is_locked(RunFolder(Path(folder)).supervisor_lock)
        }

    def log_path(self, folder: str) -> str:
        return posixpath.join(folder, "logs", "supervisor.err")

    async def signal(self, host: Host, folder: str, number: signal.Signals) -> bool:
        raise HostError(
            "UNSUPPORTED",
            f"Supervisors on {host.name} are threads, which take no signals.",
            "Stop the run: `trainmaster stop RUN`.",
        )

    async def cancel(self, host: Host, folder: str) -> bool:
        for thread in threading.enumerate():
            if isinstance(thread, _SupervisorThread) and str(thread.run_folder.root) == folder:
                thread.cancelled.set()
                thread.join(_ENDS_WITHIN_S)
                return True
        return False


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
                    self.cancelled.wait(_POLL_S)
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
