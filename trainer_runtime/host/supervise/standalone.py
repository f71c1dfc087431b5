"""Trains in a run's folder without a supervisor: `trainer_runtime train`, called by train.sh.

Nothing is restarted or judged here; the status page and the index of checkpoints are written as
under a supervisor.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NoReturn

from trainer_runtime.core.config import RunConfig
from trainer_runtime.core.files.durable import try_lock
from trainer_runtime.core.frameworks import launching
from trainer_runtime.core.policy.endings import EndReason, Exit, classify
from trainer_runtime.core.protocol.command import command
from trainer_runtime.core.protocol.journal import AttemptRecord, Record
from trainer_runtime.core.protocol.lines import ExitCode, ProtocolError, decode
from trainer_runtime.core.protocol.progress import Progress
from trainer_runtime.core.protocol.rendezvous import Rendezvous
from trainer_runtime.core.protocol.states import AttemptState, PlacementState
from trainer_runtime.host.files.files import LineReader
from trainer_runtime.host.files.layout import RunFolder
from trainer_runtime.host.files.resolved_environment import OPENMP, trainer_environment
from trainer_runtime.host.supervise.publish import Publisher

_PASSED_ON = (signal.SIGTERM, signal.SIGUSR2)
_EVENTS = Path("events.jsonl")
_IN_AN_IMAGE = (
    f"compute.launcher is docker: {command('launch', 'SPEC')} trains in the image. By hand, start "
    "a container of it with this folder and the cache mounted, and run `PYTHON=python3 sh "
    "train.sh` there."
)
_READ_EVERY_S = 2.0
# Of a signal that ends a process, as shells report it.
_SIGNALLED = 128
_STATES = {
    EndReason.COMPLETED: PlacementState.COMPLETED,
    EndReason.STOPPED: PlacementState.STOPPED,
}


def train(config_path: Path, *, this_python: bool) -> NoReturn:
    """Train the run in the working folder, and end as its trainer does.

    `this_python`: train with this interpreter, not with the one that the preparation settled.

    Raises:
        SystemExit: the trainer has ended, or another one of this run lives.
    """
    run = RunFolder(Path())
    config = RunConfig.parse(config_path.read_bytes())
    is_first = _is_first_node(config)
    lock = try_lock(run.trainer_lock) if is_first else None
    if lock is None and is_first:
        sys.exit("A trainer of this run is running already.")
    if config.compute.is_contained and not this_python:
        sys.exit(_IN_AN_IMAGE)
    threads = config.compute.threads
    ours = OPENMP if threads is None else {**OPENMP, "OMP_NUM_THREADS": str(threads)}
    for name, value in ours.items():
        os.environ.setdefault(name, value)
    python, environment = _python(config, this_python=this_python)
    # It inherits the lock: as long as it lives, nobody starts another one in this folder.
    trainer = _started(
        launching.command(config, python, str(config_path)),
        env={**environment, **config.env},
        pass_fds=() if lock is None else (lock,),
    )
    code = _Watch(run, config).until_end(trainer) if is_first else trainer.wait()
    sys.exit(code if code >= 0 else _SIGNALLED - code)


def _is_first_node(config: RunConfig) -> bool:
    """Whether this is the node that writes for all of a training."""
    try:
        rendezvous = Rendezvous.of_variables(config.compute.nodes, os.environ)
    except ValueError as error:
        sys.exit(f"{error}: job.sbatch sets it.")
    return rendezvous is None or rendezvous.node == 0


class _Watch:
    """Publishes what the trainer reports."""

    def __init__(self, run: RunFolder, config: RunConfig) -> None:
        now = time.time()
        attempt = AttemptRecord(
            number=1,
            generation=0,
            why="train.sh",
            mode="latest",
            candidates=[],
            set={},
            skip=None,
            state=AttemptState.RUNNING,
            starting_t=now,
            running_t=now,
        )
        self._config = config
        self._record = Record(PlacementState.RUNNING, attempts=[attempt], state_t=now)
        self._progress = Progress(1)
        self._reader = LineReader(_EVENTS)
        self._publisher = Publisher(run, time.time, window=False)

    def until_end(self, trainer: subprocess.Popen[bytes]) -> int:
        """The exit code, negative for the signal that ended it."""
        while True:
            try:
                code = trainer.wait(_READ_EVERY_S)
                break
            except subprocess.TimeoutExpired:
                self._read()
                self._publish()
        self._read()
        self._end(code)
        self._publish(final=True)
        return code

    def _read(self) -> None:
        for line in self._reader.read():
            with suppress(ProtocolError):  # a line torn by a kill
                self._progress.apply(decode(line))

    def _publish(self, *, final: bool = False) -> None:
        try:
            self._publisher.publish(self._record, [self._progress], self._config, final=final)
        except OSError as error:  # the training matters more than its page
            print(f"status page: {error}", file=sys.stderr)

    def _end(self, code: int) -> None:
        record, attempt = self._record, self._record.attempts[0]
        attempt.code, attempt.signal = (code, None) if code >= 0 else (None, -code)
        stopped = code == ExitCode.SAVED_ON_SIGTERM
        why = EndReason.STOPPED.value if stopped else None
        ending = classify(Exit(attempt.code, attempt.signal), self._progress, why)
        record.state = _STATES.get(ending.reason, PlacementState.FAILED)
        record.state_t = attempt.ended_t = time.time()
        record.last_seq += 1  # news, although no event says it
        attempt.state = AttemptState.ENDED
        attempt.reason, attempt.detail = ending.reason.value, ending.detail
        if record.state is PlacementState.FAILED:
            record.reason, record.detail = attempt.reason, attempt.detail


def _started(
    words: Sequence[str], *, env: Mapping[str, str], pass_fds: Sequence[int]
) -> subprocess.Popen[bytes]:
    """The trainer, to which signals are passed on, also those that come while it is started."""
    early: list[int] = []
    for number in _PASSED_ON:
        signal.signal(number, lambda received, _: early.append(received))
    trainer = subprocess.Popen(words, env=env, pass_fds=pass_fds)
    for number in _PASSED_ON:
        signal.signal(number, lambda received, _: trainer.send_signal(received))
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the terminal sends it to the trainer, too
    for received in early:
        trainer.send_signal(received)
    return trainer


def _python(config: RunConfig, *, this_python: bool) -> tuple[str, dict[str, str]]:
    if this_python:
        return sys.executable, dict(os.environ)
    return trainer_environment(Path("environment.json"), config)
