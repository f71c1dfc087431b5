"""Reads a long file in a process of its own, which ends with the call that awaits it.

The request comes on the process's standard input, its answer goes to standard output. A byte
behind the request asks for what was read so far; the end of the input, which the kernel sees to
however the caller ends, ends the process at once.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from typing import IO, Any

from trainmaster.calls.work import current_work
from trainmaster.errors.errors import TrainmasterError, UsageError
from trainmaster.store.detached import SAFELY

_POLL_S = 0.02
_GRACE_S = 4.0  # to answer with what was read so far
_NICENESS = 10  # beside other calls
_WHAT_IS_READ = b"."
METRICS, DIAGNOSIS, SEARCH = "metrics", "diagnosis", "search"


async def read_in_process(request: Mapping[str, Any], *, in_part: bool = False) -> dict[str, Any]:
    """The answer to a request, once the caller's share has room. `in_part`: where the time of the
    call is over, what was read so far is the answer.

    Raises:
        UsageError: as the answering function; `LOG_NOT_READABLE`, the process ended early.
        StateError: `READ_TOO_LONG`, `READS_AT_ONCE`.
    """
    work = current_work()
    if work.shares is None:
        return await _answered(request, 0, in_part=in_part)
    async with work.shares.taken(work.caller, work.left_s()):
        return await _answered(request, _NICENESS, in_part=in_part)


async def _answered(request: Mapping[str, Any], niceness: int, *, in_part: bool) -> dict[str, Any]:
    work = current_work()
    request = {**request, "within_s": work.left_s()}
    with tempfile.TemporaryFile() as output:
        async with _started(request, niceness, output) as process:
            while process.poll() is None and work.left_s() != 0:
                await asyncio.sleep(_POLL_S)
            if in_part:
                await _end(process)
        output.seek(0)
        text = output.read()
    if process.returncode:
        work.spend()  # where it had no time
        raise UsageError(
            "LOG_NOT_READABLE",
            f"{request['path']} can't be read as a log: the process that read it ended early.",
            "Check the free memory, then repeat the call.",
        )
    answer: dict[str, Any] = json.loads(text)
    if "error" in answer:
        error = answer["error"]
        raise UsageError(error["code"], error["message"], error["fix"])
    return answer


async def _end(process: subprocess.Popen[bytes]) -> None:
    """Have the process answer with what it has."""
    assert process.stdin is not None
    with suppress(OSError):
        process.stdin.write(_WHAT_IS_READ)
    until = time.monotonic() + _GRACE_S
    while process.poll() is None and time.monotonic() < until:
        await asyncio.sleep(_POLL_S)


@asynccontextmanager
async def _started(
    request: Mapping[str, Any], niceness: int, output: IO[bytes]
) -> AsyncIterator[subprocess.Popen[bytes]]:
    """The process, which doesn't survive."""
    process = subprocess.Popen(
        [sys.executable, *SAFELY, "-m", "trainmaster", "read-log"],
        stdin=subprocess.PIPE,
        stdout=output,
        # The terminal's Ctrl-C is for the caller. Not a session of its own: Linux gives each an
        # equal share of the processor, whatever the niceness in it (autogroups).
        process_group=0,
        bufsize=0,
    )
    assert process.stdin is not None
    try:
        with suppress(ProcessLookupError):
            os.setpriority(os.PRIO_PROCESS, process.pid, os.nice(0) + niceness)
        process.stdin.write(json.dumps(request).encode() + b"\n")
        yield process
    finally:
        process.kill()
        process.stdin.close()
        process.wait()


class Requested:
    """In the process: the request, and whether what was read so far is asked for."""

    def __init__(self) -> None:
        self._is_over = threading.Event()
        begun = b""
        while b"\n" not in begun:
            begun += self._received()
        self.request: dict[str, Any] = json.loads(begun.partition(b"\n")[0])
        threading.Thread(target=self._listen, daemon=True).start()

    def is_for(self, what: str) -> bool:
        return bool(self.request["what"] == what)

    def is_over(self) -> bool:
        """Whether to answer with what was read so far."""
        return self._is_over.is_set()

    def answer(self, read: Callable[[Requested], Mapping[str, Any]]) -> None:
        """Answer with what `read` returns, or with its error."""
        try:
            answer = read(self)
        except TrainmasterError as error:
            answer = {"error": error.to_dict()}
        sys.stdout.write(json.dumps(answer))

    def _listen(self) -> None:
        while self._received():
            self._is_over.set()

    def _received(self) -> bytes:
        # Unbuffered: the listening thread would hold a buffer's lock while the interpreter ends.
        data = os.read(sys.stdin.fileno(), 1 << 16)
        if not data:
            os._exit(1)
        return data
