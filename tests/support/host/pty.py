"""A command at a terminal, and somebody who types there."""

from __future__ import annotations

import codecs
import os
import pty
import select
import subprocess
import sys
import time
from types import TracebackType

from support.runs.running_run import CommandLine


class Terminal:
    """`trainmaster …` with a terminal for its three streams; `shown` is what has come to stand on
    it so far. `variables`: what its environment has otherwise."""

    def __init__(self, command: CommandLine, *arguments: str, **variables: str) -> None:
        self.shown = ""
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")  # reads part characters
        self._master, slave = pty.openpty()
        self._process = subprocess.Popen(
            [sys.executable, "-c", "from trainmaster.cli import main; main()", *arguments],
            env={
                **command.environment,
                "TERM": "xterm",
                "NO_COLOR": "1",
                "COLUMNS": "200",
                **variables,
            },
            stdin=slave,
            stdout=slave,
            stderr=slave,
            start_new_session=True,
        )
        os.close(slave)

    def __enter__(self) -> Terminal:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self._process.kill()
        self._process.wait()
        os.close(self._master)

    def wait_for(self, text: str, bound_s: float = 120.0) -> None:
        deadline = time.monotonic() + bound_s
        while text not in self.shown:
            assert self._read() and time.monotonic() < deadline, (text, self.shown)

    def type(self, text: str) -> None:
        os.write(self._master, text.encode())

    def end(self, bound_s: float = 120.0) -> int:
        """The exit code, once all is shown."""
        deadline = time.monotonic() + bound_s
        while self._read():
            assert time.monotonic() < deadline, self.shown
        return self._process.wait(timeout=bound_s)

    def _read(self) -> bool:
        """Whether there may be more to come."""
        if not select.select([self._master], [], [], 0.2)[0]:
            return True
        try:
            data = os.read(self._master, 4096)
        except OSError:  # nobody holds the other end any more
            return False
        self.shown += self._decoder.decode(data)
        return bool(data)
