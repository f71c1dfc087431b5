"""Attempts as threads of this process, seen by the supervisor as it sees real processes."""

from __future__ import annotations

import os
from pathlib import Path

from trainer_runtime.core.policy.recovery import Exit
from trainer_runtime.host.files.files import read_json, write_json
from trainer_runtime.host.files.layout import RunFolder
from trainer_runtime.host.processes.identity import ProcessIdentity, identify, is_alive
from trainer_runtime.host.processes.processes import Observation
from trainmaster.backends.debug.trainer import SimulatedTrainer


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
