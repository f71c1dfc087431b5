"""Trainings that others have started: processes that know nothing of Trainmaster."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

OUT_OF_MEMORY = """\
Traceback (most recent call last):
  File "train.py", line 301, in <module>
    loss.backward()
torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total \
capacity of 79.10 GiB of which 1.06 GiB is free.
"""


def lines(begin: int, end: int) -> str:
    """What nanoGPT prints of these steps, an evaluation at each tenth."""
    found = []
    for step in range(begin, end):
        if step % 10 == 0:
            found.append(f"step {step}: train loss {4 - step / 500:.4f}, val loss 4.2000\n")
        found.append(f"iter {step}: loss {4 - step / 500:.4f}, time 51.20ms, mfu 31.40%\n")
    return "".join(found)


class ForeignTraining:
    """A process that writes the lines given to it to its output."""

    def __init__(self, command: list[str], said_through: int, process: int | None) -> None:
        self._command = command
        self._descriptor = said_through
        self.pid = process or 0

    def say(self, text: str) -> None:
        data = text.encode()
        while data:
            data = data[os.write(self._descriptor, data) :]

    def end(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
        self._descriptor = -1


@contextmanager
def writing(log: Path, *command: str) -> Iterator[ForeignTraining]:
    """A training that writes to a log; `command` in place of the plain writer."""
    with log.open("ab") as output:
        process = subprocess.Popen(
            command or ("cat",), stdin=subprocess.PIPE, stdout=output, start_new_session=True
        )
    assert process.stdin is not None
    training = ForeignTraining(list(command), os.dup(process.stdin.fileno()), process.pid)
    process.stdin.close()
    try:
        yield training
    finally:
        training.end()
        process.wait(timeout=60)


@contextmanager
def listening(fifo: Path) -> Iterator[ForeignTraining]:
    """A training that says what comes through a FIFO: for terminals, where `cat FIFO` runs."""
    os.mkfifo(fifo)
    training = ForeignTraining(["cat", str(fifo)], os.open(fifo, os.O_RDWR), None)
    try:
        yield training
    finally:
        training.end()
