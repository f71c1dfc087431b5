"""The trainer's parent: starts it once, waits, writes how it ended. Nothing else.

`python3 -m trainer_runtime hold RUN_DIR ATTEMPT`. It leads a session of its own, and so does the
trainer: neither the supervisor's end nor a closed terminal reaches them. The trainer's output goes
straight into the opened log, so that hold may be killed without a byte lost; only `pty: true` puts
a pump between them, since a terminal needs one.

The run's trainer lock is taken here and inherited by the trainer: whatever the supervisors believe,
a second trainer of the same run can't start while any process of the first one lives. A trainer in
a container (contained.py) shares it instead.
"""

from __future__ import annotations

import os
import pty
import select
import subprocess
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trainer_runtime.core.config import RunConfig
from trainer_runtime.core.decoding import DecodingError
from trainer_runtime.core.diagnosis.stacks.names import ATTEMPT_VARIABLE
from trainer_runtime.core.files.durable import try_lock
from trainer_runtime.core.files.private import for_the_user, users_umask
from trainer_runtime.core.frameworks.launching import command
from trainer_runtime.core.protocol.lines import ExitCode
from trainer_runtime.host.containers.container import Container, Image
from trainer_runtime.host.files.files import write_json
from trainer_runtime.host.files.layout import AttemptFolder, RunFolder
from trainer_runtime.host.files.resolved_environment import OPENMP, trainer_environment
from trainer_runtime.host.files.secret_file import SecretsMissingError, secret_environment
from trainer_runtime.host.processes import contained
from trainer_runtime.host.processes.identity import identify

MARKER = ATTEMPT_VARIABLE
_LOCK_WAIT_S = 20.0
_WRITE_WAIT_S = 600.0
_DEFAULTS = {**OPENMP, "PYTHONUNBUFFERED": "1"}
_NOT_STARTED = 127  # what a shell says of a command that it can't find
_MOST_READS_AFTER_THE_END = 100  # of up to 4 KiB each; a terminal holds less


@dataclass(frozen=True, slots=True)
class _Launch:
    """What one attempt's trainer is started with; `log` and `lock` are descriptors."""

    run: RunFolder
    attempt: AttemptFolder
    number: int
    config: RunConfig
    log: int
    lock: int


def marker(run_id: str, attempt: int) -> str:
    """What every process of an attempt carries in its environment."""
    return f"{MARKER}={run_id}/{attempt}"


def marked(config: RunConfig) -> dict[str, str]:
    """The marker as a variable, for whatever is run for the attempt of this config, if it has one:
    it lets a stop find it, whichever other processes are gone."""
    if not config.attempt.is_recorded:
        return {}
    name, value = marker(config.run_id, config.attempt.number).split("=", 1)
    return {name: value}


def hold(run_dir: Path, number: int) -> int:
    """Run one attempt's trainer to its end; 0 also where there was nothing to start."""
    run, attempt = RunFolder(run_dir), RunFolder(run_dir).attempt(number)
    lock = _wait_for_lock(run.trainer_lock)
    if lock is None or attempt.process.exists() or _superseded(run_dir, number):
        return 0
    write_json(attempt.process, {"hold": _identity(os.getpid()), "trainer": None})
    log = os.open(attempt.train_log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        config = RunConfig.parse(attempt.config.read_bytes(), str(attempt.config))
        launch = _Launch(run, attempt, number, config, log, lock)
        code: int | None
        image = Image.find(attempt.environment) if config.compute.is_contained else None
        if image is not None:
            code = _run_in_container(launch, image)
        elif config.pty:
            code = _run_with_terminal(launch)
        else:
            code = _spawn(launch, stdin=subprocess.DEVNULL, output=log).wait()
    except (SecretsMissingError, DecodingError) as error:
        os.write(log, f"{error}\n".encode())
        code = ExitCode.UNUSABLE
    except (OSError, contained.NotStartedError) as error:
        os.write(log, f"The trainer could not be started: {error}\n".encode())
        code = _NOT_STARTED
    signalled = code is not None and code < 0
    outcome = {"code": None if signalled else code, "signal": -code if code and signalled else None}
    _record(attempt.exit, {**outcome, "t": time.time()})
    return 0


def _record(path: Path, outcome: dict[str, Any]) -> None:
    """Write how it ended; a disk that is full just now may have room again soon."""
    deadline = time.monotonic() + _WRITE_WAIT_S
    while True:
        try:
            write_json(path, outcome)
            return
        except OSError:
            if time.monotonic() > deadline or not path.parent.exists():
                raise
            time.sleep(1.0)


def _wait_for_lock(path: Path) -> int | None:
    """The lock, once the attempt before has wholly gone; None if it doesn't within the bound."""
    deadline = time.monotonic() + _LOCK_WAIT_S
    while (lock := try_lock(path)) is None:
        if time.monotonic() > deadline:
            return None
        time.sleep(0.05)
    return lock


def _superseded(run_dir: Path, number: int) -> bool:
    attempts = (run_dir / "attempts").iterdir()
    return any(folder.name.isdigit() and int(folder.name) > number for folder in attempts)


def _spawn(launch: _Launch, *, stdin: int, output: int) -> subprocess.Popen[bytes]:
    run, attempt, config = launch.run, launch.attempt, launch.config
    name, value = marker(run.run_id, launch.number).split("=", 1)
    python, environment = trainer_environment(attempt.environment, config)
    variables = {**config.env, **secret_environment(run, config)}
    relative_config = attempt.config.relative_to(run.root)
    trainer = subprocess.Popen(
        command(config, python, str(relative_config)),
        cwd=run.root,
        env=for_the_user({**_DEFAULTS, **environment, **variables, name: value}),
        stdin=stdin,
        stdout=output,
        stderr=output,
        start_new_session=True,
        umask=users_umask(),
        pass_fds=[launch.lock],
    )
    identities = {"hold": _identity(os.getpid()), "trainer": _identity(trainer.pid)}
    write_json(attempt.process, identities)
    return trainer


def _run_in_container(launch: _Launch, image: Image) -> int | None:
    name, value = marker(launch.run.run_id, launch.number).split("=", 1)
    folder = launch.run.root.resolve()
    relative_config = launch.attempt.config.relative_to(launch.run.root)
    container = Container(image, folder, launch.config, relative_config, {name: value})
    log = launch.attempt.train_log.relative_to(launch.run.root)

    def note(pid: int) -> None:
        identities = {"hold": _identity(os.getpid()), "trainer": _identity(pid)}
        write_json(launch.attempt.process, identities)

    return contained.train(container, launch.number, log, launch.lock, note)


def _run_with_terminal(launch: _Launch) -> int:
    ours, theirs = pty.openpty()
    trainer = _spawn(launch, stdin=theirs, output=theirs)
    os.close(theirs)
    _pump(ours, launch.log, trainer)
    return trainer.wait()


def _pump(terminal: int, log: int, trainer: subprocess.Popen[bytes]) -> None:
    """Copy what the trainer says to its terminal into the log.

    Whom it leaves behind may keep the terminal open, and write to it for ever: after the trainer's
    end only what already stands there is read.
    """
    reads_left = _MOST_READS_AFTER_THE_END
    while reads_left:
        ended = trainer.poll() is not None
        ready, _, _ = select.select([terminal], [], [], 0.05 if ended else 0.2)
        reads_left -= ended
        if not ready and ended:
            return
        if not ready:
            continue
        try:
            data = os.read(terminal, 65536)
        except OSError:  # EIO: the trainer's side was closed
            return
        if not data:
            return
        with suppress(OSError):  # a full disk costs lines of the log, not the training
            os.write(log, data)


def _identity(pid: int) -> dict[str, Any] | None:
    process = identify(pid)
    return process.to_dict() if process else None
