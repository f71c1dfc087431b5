"""A trainer in a container, as hold starts it and waits for it.

The container is started detached and is not the engine's to remove: its exit code stays there to be
read, whatever becomes of the engine's daemon meanwhile, until hold has read it.
"""

from __future__ import annotations

import fcntl
import os
import re
import select
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from trainer_runtime.core.frameworks.launching import command
from trainer_runtime.core.protocol.text import shown
from trainer_runtime.host.containers.container import (
    NOT_STARTED,
    Container,
    container_name,
    home,
    inspect_container,
    remove_containers,
)
from trainer_runtime.host.containers.engine import Engine, ask_engine
from trainer_runtime.host.processes.identity import ProcessIdentity, identify, is_alive

_ENGINE_BACK_WITHIN_S = 120.0
_POLL_S = 1.0
_SHORT_POLL_S = 0.05
_STATE = "{{.State.Status}} {{.State.ExitCode}}"
_ENDED = ("exited", "stopped", "dead")
# Of one that somebody has removed, in the engines' words.
_NO_CONTAINER = re.compile(r"no such (container|object)|no container with", re.IGNORECASE)
_SIGNALLED = 128
_LAST_LINES = 20


class NotStartedError(Exception):
    """The engine could not start the container, in its own words."""


def train(
    container: Container, attempt: int, log: Path, lock: int, note: Callable[[int], None]
) -> int | None:
    """Run the trainer of an attempt to its end: its exit code, minus the signal that ended it; None
    where nobody knows.

    `lock`: the run's trainer lock, held alone; from here on the trainer holds it, too. `note` is
    given the trainer's pid once it has one.

    Raises:
        NotStartedError: with the engine's reason.
    """
    config, engine = container.config, container.image.engine
    name = container_name(config.run_id, attempt)
    remove_containers(engine, config.run_id)
    home(config).mkdir(parents=True, exist_ok=True)
    fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    trainer = command(config, container.image.python, str(container.config_path))
    _start(container.trainer_command(attempt, trainer, log), engine, config.run_id)
    process = _process(engine, name)
    if process is not None:
        note(process.pid)
        _await_end(process)
    code = _exit_code(engine, name)
    if code != 0:
        _keep_last_words(engine, name, container.run / log)
    ask_engine(engine.program, "rm", "--force", name)
    return code


def _start(words: Sequence[str], engine: Engine, run_id: str) -> None:
    """Start the container; a daemon that is just being restarted is waited for."""
    while True:
        done = subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, check=False)
        if done.returncode == 0:
            return
        said = [text for line in done.stderr.splitlines() if (text := shown(line).strip())]
        if done.returncode != NOT_STARTED or _answers(engine):
            raise NotStartedError("\n".join(said) or f"exit code {done.returncode}")
        if not _answers_again(engine):
            raise NotStartedError("\n".join(said))
        remove_containers(engine, run_id)


def _answers(engine: Engine) -> bool:
    return ask_engine(engine.program, "version").code == 0


def _answers_again(engine: Engine) -> bool:
    deadline = time.monotonic() + _ENGINE_BACK_WITHIN_S
    while time.monotonic() < deadline:
        if _answers(engine):
            return True
        time.sleep(_POLL_S)
    return False


def _process(engine: Engine, name: str) -> ProcessIdentity | None:
    answer = inspect_container(engine, name, "{{.State.Pid}}")
    pid = int(answer.output) if answer.output.isdecimal() else 0
    return identify(pid) if pid else None


def _await_end(process: ProcessIdentity) -> None:
    """Wait until the process is gone: it is there or not, whatever becomes of the engine."""
    poll = select.poll()
    descriptor = -1
    with suppress(OSError):  # kernels before 5.3 have none: then it is polled
        descriptor = os.pidfd_open(process.pid)
        poll.register(descriptor, select.POLLIN)
    try:
        while is_alive(process):
            poll.poll(_POLL_S * 1000 if descriptor < 0 else None)
    finally:
        if descriptor >= 0:
            os.close(descriptor)


def _exit_code(engine: Engine, name: str) -> int | None:
    """The exit code as the engine has it, once the container has ended."""
    unknown_since_s: float | None = None
    wait_s = _SHORT_POLL_S
    while True:
        answer = inspect_container(engine, name, _STATE)
        state = answer.output.split()
        if len(state) == 2 and state[0] in _ENDED and state[1].isdecimal():
            return _outcome(int(state[1]))
        if answer.code != 0:
            unknown_since_s = unknown_since_s or time.monotonic()
            is_removed = _NO_CONTAINER.search(answer.problem) is not None
            if is_removed or time.monotonic() - unknown_since_s > _ENGINE_BACK_WITHIN_S:
                return None
        time.sleep(wait_s)
        wait_s = min(2 * wait_s, _POLL_S)


def _outcome(code: int) -> int:
    """Engines report an end by a signal as shells do."""
    number = code - _SIGNALLED
    return -number if number in set(signal.Signals) else code


def _keep_last_words(engine: Engine, name: str, log: Path) -> None:
    """Without a line of the trainer's own, what the engine heard of it says why."""
    if log.exists() and log.stat().st_size:
        return
    said = subprocess.run(
        [engine.program, "logs", "--tail", str(_LAST_LINES), name],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        check=False,
    )
    descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        os.write(descriptor, said.stdout)
    finally:
        os.close(descriptor)
