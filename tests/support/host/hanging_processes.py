"""Real processes of an attempt that hang, for the tests of `inspect`."""

from __future__ import annotations

import os
import secrets
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType

from support.runs.running_run import wait_until

from trainer_runtime.host.files.files import write_json
from trainer_runtime.host.files.layout import AttemptFolder, RunFolder
from trainer_runtime.host.processes.hold import marker
from trainer_runtime.host.processes.identity import carriers, identify, send

_PROJECT = Path(__file__).parents[3]
_ANSWERS = "from trainer_runtime.train.loop import stacks; stacks.answer_signals()\n"


class Hanging:
    """An attempt whose trainers are scripts; each says where it is by touching a file.

    Its processes are ended when the context is left.
    """

    def __init__(self, folder: Path, attempt: int = 1) -> None:
        # Processes are found by the run's name alone: no other test may have it.
        self.run = RunFolder(folder / f"hanging-{secrets.token_hex(6)}")
        self.number = attempt
        self.folder.root.mkdir(parents=True)
        self._started: list[subprocess.Popen[bytes]] = []

    @property
    def folder(self) -> AttemptFolder:
        return self.run.attempt(self.number)

    def start(
        self, script: str, *, answers: bool = True, environment: Mapping[str, str] | None = None
    ) -> subprocess.Popen[bytes]:
        """Start a process that carries the attempt's marker, the run's folder its working folder.

        `answers`: it writes its stacks when it is asked, as a trainer of ours does.
        """
        path = self.run.root / f"train{len(self._started)}.py"
        path.write_text((_ANSWERS if answers else "") + script)
        name, _, value = marker(self.run.run_id, self.number).partition("=")
        with self.folder.train_log.open("ab") as log:
            process = subprocess.Popen(
                [sys.executable, path.name],
                cwd=self.run.root,
                env={
                    **os.environ,
                    "PYTHONPATH": str(_PROJECT),
                    "OMP_NUM_THREADS": "1",
                    **(environment or {}),
                    name: value,
                },
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        if not self._started:
            identity = identify(process.pid)
            trainer = identity.to_dict() if identity else None
            write_json(self.folder.process, {"hold": None, "trainer": trainer})
        self._started.append(process)
        return process

    def wait_for(self, name: str) -> None:
        """Until a script has touched this file of the run's folder."""
        wait_until((self.run.root / name).exists, f"{name}: {self.log()}")

    def fifo(self, name: str) -> None:
        """A file in the run's folder that nobody writes: to open it is to wait for ever."""
        os.mkfifo(self.run.root / name)

    def log(self) -> str:
        return self.folder.train_log.read_text()[-2000:]

    def __enter__(self) -> Hanging:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for process in carriers(marker(self.run.run_id, self.number)):
            send(process, signal.SIGKILL)
        for started in self._started:
            started.kill()
            started.wait()
