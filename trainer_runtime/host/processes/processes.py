"""The processes of an attempt: preparation, hold and trainer, seen and ended from outside."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol

from trainer_runtime.core.policy.endings import Exit
from trainer_runtime.host.containers.container import Image, container_name
from trainer_runtime.host.files.files import read_json
from trainer_runtime.host.files.layout import RunFolder
from trainer_runtime.host.files.secret_file import secret_values
from trainer_runtime.host.processes.hold import marker
from trainer_runtime.host.processes.identity import (
    ProcessIdentity,
    carriers,
    current_epoch,
    is_alive,
    send,
    session_members,
)


@dataclass(frozen=True, slots=True)
class Observation:
    """`absent`: never started, as far as can be seen. `end` is set where it has ended."""

    state: Literal["absent", "running", "ended"]
    end: Exit | None = None


class Processes(Protocol):
    """How the supervisor deals with an attempt's processes. Every method may be repeated.

    The host's are operating-system processes; the debug backend's are simulated.
    """

    def prepare(self, attempt: int) -> None:
        """Begin to prepare data and environment, unless that is under way or done."""

    def prepared(self, attempt: int) -> int | None:
        """The preparation's exit code; None while it has not ended."""

    def start(self, attempt: int) -> None:
        """Start the trainer, unless the attempt has been started before."""

    def observe(self, attempt: int) -> Observation:
        """What has become of the attempt's trainer."""

    def terminate(self, attempt: int) -> None:
        """Ask the preparation or the trainer to save and end (SIGTERM); each process once."""

    def kill(self, attempt: int) -> None:
        """Kill all processes that the attempt has left running (SIGKILL)."""


class BoxProcesses:
    """Attempts as processes of this machine."""

    def __init__(self, folder: Path) -> None:
        self._run = RunFolder(folder)
        self._preparation: tuple[int, subprocess.Popen[bytes]] | None = None
        self._hold: tuple[int, subprocess.Popen[bytes]] | None = None
        self._asked_to_end: set[ProcessIdentity] = set()
        self._removal: subprocess.Popen[bytes] | None = None
        self._removed: set[int] = set()

    def prepare(self, attempt: int) -> None:
        if self._preparation is not None and self._preparation[0] == attempt:
            return
        folder = self._run.attempt(attempt)
        with folder.setup_log.open("ab") as log:
            process = subprocess.Popen(
                [sys.executable, "-u", "-m", "trainer_runtime", "prepare", str(folder.config)],
                cwd=self._run.root,
                env={**os.environ, **secret_values(self._run)},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self._preparation = (attempt, process)

    def prepared(self, attempt: int) -> int | None:
        if self._preparation is None or self._preparation[0] != attempt:
            return None
        return self._preparation[1].poll()

    def start(self, attempt: int) -> None:
        if self._hold is not None and self._hold[0] == attempt and self._hold[1].poll() is None:
            return
        with self._run.supervisor_errors.open("ab") as errors:
            process = subprocess.Popen(
                [sys.executable, "-m", "trainer_runtime", "hold", ".", str(attempt)],
                cwd=self._run.root,
                stdin=subprocess.DEVNULL,
                stdout=errors,
                stderr=errors,
                start_new_session=True,
            )
        self._hold = (attempt, process)

    def observe(self, attempt: int) -> Observation:
        folder = self._run.attempt(attempt)
        identities = read_json(folder.process)
        # In this order: a hold that is gone has already written the exit, or never will.
        living = identities is not None and self._lives(attempt, identities)
        end = read_json(folder.exit)
        if end is not None:
            self._reap(attempt)
            return Observation("ended", Exit(end.get("code"), end.get("signal")))
        if living:
            return Observation("running")
        if identities is None:
            return self._observe_unrecorded(attempt)
        rebooted = (identities.get("hold") or {}).get("epoch") != current_epoch()
        return Observation("ended", Exit(None, None, rebooted=rebooted))

    def terminate(self, attempt: int) -> None:
        preparation = self._preparing(attempt)
        if preparation is not None:
            preparation.terminate()
        trainer = self._trainer(attempt)
        meant = [trainer] if trainer else carriers(marker(self._run.run_id, attempt))
        for process in meant:
            if process not in self._asked_to_end:
                send(process, signal.SIGTERM)
                self._asked_to_end.add(process)

    def kill(self, attempt: int) -> None:
        preparation = self._preparing(attempt)
        if preparation is not None:
            preparation.kill()
        trainer = self._trainer(attempt)
        doomed = set(session_members(trainer)) if trainer is not None else set()
        doomed.update(carriers(marker(self._run.run_id, attempt)))
        for process in doomed:
            send(process, signal.SIGKILL)
        self._end_container(attempt)

    def _end_container(self, attempt: int) -> None:
        """Have the engine end the attempt's container as well: what rewrote its environment is
        no carrier of the marker. Where hold is gone, nobody else would remove it."""
        if self._removal is not None and self._removal.poll() is None:
            return
        folder = self._run.attempt(attempt)
        image = Image.find(folder.environment)
        identities = read_json(folder.process)
        if image is None or identities is None or attempt in self._removed:
            return
        hold = identities.get("hold")
        held = isinstance(hold, dict) and is_alive(ProcessIdentity.from_dict(hold))
        name = container_name(self._run.run_id, attempt)
        words = ("kill", name) if held else ("rm", "--force", name)
        if not held:
            self._removed.add(attempt)
        self._removal = subprocess.Popen(
            [image.engine.program, *words],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )

    def _preparing(self, attempt: int) -> subprocess.Popen[bytes] | None:
        """The attempt's preparation, as long as it runs."""
        if self._preparation is None or self._preparation[0] != attempt:
            return None
        return self._preparation[1] if self._preparation[1].poll() is None else None

    def _lives(self, attempt: int, identities: dict[str, object]) -> bool:
        for name in ("hold", "trainer"):
            data = identities.get(name)
            if isinstance(data, dict) and is_alive(ProcessIdentity.from_dict(data)):
                return True
        # Hold was killed before it could note the trainer's identity.
        return identities.get("trainer") is None and bool(
            carriers(marker(self._run.run_id, attempt))
        )

    def _observe_unrecorded(self, attempt: int) -> Observation:
        """Hold has written nothing: it is just starting, was never started, or failed."""
        if self._hold is not None and self._hold[0] == attempt:
            code = self._hold[1].poll()
            if code is None:
                return Observation("running")
            if code != 0:
                return Observation("ended", Exit(code, None, prepared=False))
        return Observation("absent")

    def _trainer(self, attempt: int) -> ProcessIdentity | None:
        data = (read_json(self._run.attempt(attempt).process) or {}).get("trainer")
        return ProcessIdentity.from_dict(data) if isinstance(data, dict) else None

    def _reap(self, attempt: int) -> None:
        if self._hold is not None and self._hold[0] == attempt:
            self._hold[1].poll()
