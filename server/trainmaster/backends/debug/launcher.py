"""Supervisors as threads of this process."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Sequence
from pathlib import Path

from trainer_runtime.box.files.layout import RunFolder
from trainer_runtime.box.supervise.supervisor import Supervisor
from trainer_runtime.box.watch.telemetry import Telemetry
from trainer_runtime.core.files.durable import is_locked, try_lock
from trainmaster.backends.debug.processes import SimulatedProcesses
from trainmaster.backends.hosts import Host

_POLL_S = 0.02


class InProcessLauncher:
    name = "in_process"

    async def ensure_supervisor(self, host: Host, folder: str) -> bool:
        run = RunFolder(Path(folder))
        lock = try_lock(run.supervisor_lock)
        if lock is None:
            return False
        thread = threading.Thread(
            target=_supervise, args=(run, lock), name=f"supervisor-{run.run_id}", daemon=True
        )
        thread.start()
        return True

    async def supervised(self, host: Host, folders: Sequence[str]) -> frozenset[str]:
        return frozenset(
            folder for folder in folders if is_locked(RunFolder(Path(folder)).supervisor_lock)
        )


def _supervise(run: RunFolder, lock: int | None) -> None:
    """Supervise to the end, as a host does; the run's folder may be removed at any time."""
    try:
        while lock is not None:
            supervisor = Supervisor(
                run, SimulatedProcesses(run.root), time.time, Telemetry(run.root), window=False
            )
            while not supervisor.tick():
                time.sleep(_POLL_S)
            supervisor.close()
            os.close(lock)
            lock = try_lock(run.supervisor_lock) if supervisor.has_newer_request() else None
    except OSError:
        return
    finally:
        if lock is not None:
            os.close(lock)
