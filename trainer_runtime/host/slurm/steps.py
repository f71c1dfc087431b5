"""Steps of a job: what `srun` runs on one of its further nodes."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from signal import SIGTERM

from trainer_runtime.host.processes.identity import ProcessIdentity, identify, is_alive, send

# Of a node that lacks the run's folder, unlike one on which a program fails.
FOLDER_MISSING = 66
_IN_FOLDER = 'test -f "$0/config.json" && cd "$0" || exit 66; exec "$@"'
# Slurm signals all processes of a job before it ends the job, and `srun` kills its step for that.
# One that no process of the job is the parent of is left alone, and ends with its step.
_DETACHED = 'setsid "$@" <"$0" >&2 & echo $!'
# Other steps may still be ending on that node.
_VARIABLES = {"SLURM_OVERLAP": "1"}
_AGAIN_S = 5.0
_POLL_S = 1.0


@dataclass(frozen=True, slots=True)
class Step:
    """`words`: of our program, run in `folder` on a node with `cpus` of its cores."""

    node: str
    folder: Path
    cpus: int
    words: tuple[str, ...]

    @property
    def command(self) -> list[str]:
        program = [sys.executable or "python3", "-m", "trainer_runtime", *self.words]
        return [
            *("srun", "--nodes=1", "--ntasks=1", f"--nodelist={self.node}", "--export=ALL"),
            *(f"--cpus-per-task={self.cpus}", "--kill-on-bad-exit=0", "--mpi=none"),
            *("sh", "-c", _IN_FOLDER, str(self.folder), *program),
        ]


class KeptSteps:
    """Steps that are begun again whenever one ends, until `close`; `orders`: a file for the
    standard input of each."""

    def __init__(self, steps: Sequence[Step], orders: Mapping[str, Path]) -> None:
        self._given = orders
        self._running = {step: self._begun(step) for step in steps}
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._keep, name="steps", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """End the steps, with all that they run."""
        self._closing.set()
        self._thread.join(2 * _POLL_S)
        for process in self._running.values():
            if process is not None:
                send(process, SIGTERM)

    def _keep(self) -> None:
        begun_s = dict.fromkeys(self._running, time.monotonic())
        while not self._closing.wait(_POLL_S):
            for step, process in list(self._running.items()):
                lives = process is not None and is_alive(process)
                if not lives and time.monotonic() - begun_s[step] > _AGAIN_S:
                    begun_s[step] = time.monotonic()
                    self._running[step] = self._begun(step)

    def _begun(self, step: Step) -> ProcessIdentity | None:
        """The step's `srun`; None where it could not be begun, as without a process to spare: it
        is tried again like one that has ended, and the job's output says why."""
        try:
            return _detached(step, self._given[step.node])
        except OSError as error:
            with suppress(OSError):  # that may be on a full disk
                said = f"session: the step on {step.node} can't be begun, and is tried again"
                print(f"{said}: {error}", file=sys.stderr, flush=True)
            return None


def _detached(step: Step, orders: Path) -> ProcessIdentity | None:
    """The step's `srun`, of which this process is not the parent; None where it did not begin."""
    done = subprocess.run(
        ["sh", "-c", _DETACHED, str(orders), *step.command],
        env=step_environment(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
        check=False,
    )
    number = done.stdout.strip()
    return identify(int(number)) if number.isdigit() else None


def step_environment() -> dict[str, str]:
    """The environment of `srun`."""
    return {**os.environ, **_VARIABLES}
