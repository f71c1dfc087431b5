"""A step of a job that is asked over its standard input, and answers on standard output."""

from __future__ import annotations

import json
import os
import select
import subprocess
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from trainer_runtime.core.protocol.text import shown
from trainer_runtime.host.slurm.steps import Step, step_environment

_ENDS_S = 5.0
_LONGEST = 300
_AT_ONCE = 1 << 16


class AskedStep:
    """A step that answers each line that it is given with a line, an object in JSON."""

    def __init__(self, step: Step) -> None:
        """Begin it.

        Raises:
            OSError: `srun` can't be started.
        """
        self._process = subprocess.Popen(
            step.command,
            env=step_environment(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            bufsize=0,
        )
        self._unread = b""
        self._ended: tuple[int, str] | None = None

    def ask(self, asked: Mapping[str, object]) -> None:
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):  # its end is found where its answer is read
            self._process.stdin.write(json.dumps(asked).encode() + b"\n")

    def answer(self, within_s: float) -> dict[str, Any] | None:
        """Its next answer; None where it ends without one, or takes longer."""
        deadline = time.monotonic() + within_s
        while (line := self._line(deadline)) is not None:
            with suppress(ValueError):  # a cluster's own programs may say something, too
                answer = json.loads(line)
                if isinstance(answer, dict):
                    return answer
        return None

    def end(self) -> tuple[int, str]:
        """End the step, unless it does by itself; its exit code, and its last words."""
        if self._ended is None:
            self._ended = self._end()
        return self._ended

    def _end(self) -> tuple[int, str]:
        try:
            _, errors = self._process.communicate(timeout=_ENDS_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            _, errors = self._process.communicate()
        return self._process.returncode, shown(b" ".join(errors.split())[-_LONGEST:])

    def _line(self, deadline: float) -> bytes | None:
        assert self._process.stdout is not None
        descriptor = self._process.stdout.fileno()
        while b"\n" not in self._unread:
            left_s = deadline - time.monotonic()
            if left_s <= 0 or not select.select([descriptor], [], [], left_s)[0]:
                return None
            piece = os.read(descriptor, _AT_ONCE)
            if not piece:
                return None
            self._unread += piece
        line, _, self._unread = self._unread.partition(b"\n")
        return line
