"""Runs the preparation's commands: reports their output by line, ends them with their starter.

Each carries the attempt's marker, so that a stop finds it even where the preparation is gone.
"""

from __future__ import annotations

import os
import select
import subprocess
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from trainer_runtime.core.processes.parent_death import die_with_parent
from trainer_runtime.core.protocol.text import shown

Report = Callable[[str], None]

# The exit code of an `ask` that took too long, as of coreutils' `timeout`.
UNANSWERED = 124
_SILENCE_S = 15.0
_KEPT_LINES = 200
_LONGEST_PENDING = 1 << 16
_AFTER_THE_END_S = 1.0


@dataclass(frozen=True, slots=True)
class Ended:
    """A command's exit code (minus the signal that ended it) and its last lines, harmless.

    `output` is what an `ask` was answered on stdout, as it came.
    """

    code: int
    lines: tuple[str, ...]
    output: bytes = b""

    @property
    def last_words(self) -> str:
        return self.lines[-1] if self.lines else f"exit code {self.code}"


def follow(
    command: Sequence[str],
    report: Report,
    *,
    label: str,
    folder: Path,
    environment: Mapping[str, str],
    inherited: Sequence[int] = (),
) -> Ended:
    """Run a command to its end, each line of its output reported under `label`.

    `inherited` are descriptors that it keeps open: locks that are to be held as long as it lives.

    Raises:
        OSError: it can't be started.
    """
    process = subprocess.Popen(
        command,
        cwd=folder,
        env=dict(environment),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        pass_fds=inherited,
        preexec_fn=die_with_parent,  # noqa: PLW1509 (there are no threads)
    )
    if process.stdout is None:
        raise OSError("the command was started without a pipe")
    with process.stdout as output:
        lines = _relay(process, output.fileno(), report, label)
    return Ended(process.wait(), tuple(lines))


def ask(
    command: Sequence[str], *, folder: Path, environment: Mapping[str, str], timeout_s: float
) -> Ended:
    """Run a command that answers at once; one that can't be started or hangs has failed, too."""
    try:
        done = subprocess.run(
            command,
            cwd=folder,
            env=dict(environment),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=timeout_s,
            check=False,
            preexec_fn=die_with_parent,
        )
    except subprocess.TimeoutExpired:
        return Ended(UNANSWERED, (f"no answer within {timeout_s:.0f} s",))
    except OSError as error:
        return Ended(127, (error.strerror or str(error),))
    raw_lines = [*done.stdout.split(b"\n"), *done.stderr.split(b"\n")][-_KEPT_LINES:]
    lines = tuple(line for raw in raw_lines if (line := shown(raw).strip()))
    return Ended(done.returncode, lines, done.stdout)


def _relay(process: subprocess.Popen[bytes], output: int, report: Report, label: str) -> deque[str]:
    lines: deque[str] = deque(maxlen=_KEPT_LINES)
    pending = b""
    begun_s = heard_s = time.monotonic()
    ended_s: float | None = None
    while True:
        ready, _, _ = select.select([output], [], [], 0.05 if ended_s else 0.25)
        data = os.read(output, 1 << 16) if ready else None
        if data == b"":
            break
        now_s = time.monotonic()
        if data:
            heard_s = now_s
            *whole, pending = (pending + data).split(b"\n")
            _emit_lines(whole, lines, report, label)
            pending = pending[-_LONGEST_PENDING:]
        elif now_s - heard_s >= _SILENCE_S:
            heard_s = now_s
            report(f"{label}: still at it after {now_s - begun_s:.0f} s")
        if ended_s is None and process.poll() is not None:
            ended_s = now_s
        # What it has left running in the background may keep the pipe open for ever.
        if ended_s is not None and not data and now_s - ended_s >= _AFTER_THE_END_S:
            break
    _emit_lines([pending], lines, report, label)
    return lines


def _emit_lines(raw_lines: Sequence[bytes], lines: deque[str], report: Report, label: str) -> None:
    for raw in raw_lines:
        line = shown(raw).rstrip()
        if line.strip():
            lines.append(line.strip())
            report(f"{label}: {line}")
