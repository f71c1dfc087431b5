"""Reads a server's long file in a process of its own, which ends with the call that awaits it.

The server's other calls would wait for the interpreter. A function of ours and its arguments come
on the process's standard input, pickled; what it returns goes to standard output. A byte behind it
asks for what was read so far; the end of the input, which the kernel sees to however the caller
ends, ends the process at once.
"""

from __future__ import annotations

import asyncio
import os
import pickle
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import IO, ParamSpec, TypeVar

from trainmaster.calls.work import current_work
from trainmaster.calls.work_thread import in_thread
from trainmaster.errors.errors import TrainmasterError, UsageError
from trainmaster.store.detached import SAFELY

_SHORT_BYTES = 4 << 20
_POLL_S = 0.02
_GRACE_S = 4.0  # to answer with what was read so far
_NICENESS = 10  # beside other calls
_WHAT_IS_READ = b"."
_is_over = threading.Event()
_Parameters = ParamSpec("_Parameters")
_Returned = TypeVar("_Returned")


def is_long(*paths: Path) -> bool:
    """Whether reading these files would hold up the other calls of a server."""
    if current_work().shares is None:
        return False
    size_bytes = 0
    for path in paths:
        with suppress(OSError):  # reported by what opens it
            size_bytes += path.stat().st_size
    return size_bytes > _SHORT_BYTES


async def read_beside(
    path: Path,
    function: Callable[_Parameters, _Returned],
    *arguments: _Parameters.args,
    **named: _Parameters.kwargs,
) -> _Returned:
    """What `function` returns about a file: in a thread, or a process where it is long.

    Raises:
        UsageError: as the function; `LOG_NOT_READABLE`, the process ended early.
        StateError: `READ_TOO_LONG`, `READS_AT_ONCE`.
    """
    if not is_long(path):
        return await in_thread(function, *arguments, **named)
    return await read_in_process(path, function, *arguments, **named)


async def read_in_process(
    path: Path,
    function: Callable[_Parameters, _Returned],
    *arguments: _Parameters.args,
    **named: _Parameters.kwargs,
) -> _Returned:
    """The same by a process, once the caller's share has room."""
    work = current_work()
    assert work.shares is not None, "nobody waits for the interpreter"
    request = pickle.dumps((function, arguments, named)).hex().encode()
    async with work.shares.taken(work.caller, work.left_s()):
        with tempfile.TemporaryFile() as output:
            async with _started(request, output) as process:
                while process.poll() is None and work.left_s() != 0:
                    await asyncio.sleep(_POLL_S)
                await _end(process)
            output.seek(0)
            text = output.read()
    if process.returncode:
        work.spend()  # where it had no time
        raise UsageError(
            "LOG_NOT_READABLE",
            f"{path} can't be read as a log: the process that read it ended early.",
            "Check the free memory, then repeat the call.",
        )
    refused, answer = pickle.loads(text)
    if refused is not None:
        raise UsageError(*refused)
    returned: _Returned = answer
    return returned


async def _end(process: subprocess.Popen[bytes]) -> None:
    """Have the process answer with what it has."""
    assert process.stdin is not None
    with suppress(OSError):
        process.stdin.write(_WHAT_IS_READ)
    until = time.monotonic() + _GRACE_S
    while process.poll() is None and time.monotonic() < until:
        await asyncio.sleep(_POLL_S)


@asynccontextmanager
async def _started(request: bytes, output: IO[bytes]) -> AsyncIterator[subprocess.Popen[bytes]]:
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
            os.setpriority(os.PRIO_PROCESS, process.pid, os.nice(0) + _NICENESS)
        process.stdin.write(request + b"\n")
        yield process
    finally:
        process.kill()
        process.stdin.close()
        process.wait()


def is_over() -> bool:
    """In the process: whether to answer with what was read so far."""
    return _is_over.is_set()


def answer_request() -> None:
    """In the process: answer with what the function returns, or with its error."""
    begun = b""
    while b"\n" not in begun:
        begun += _received()
    threading.Thread(target=_listen, daemon=True).start()  # before what takes seconds to import
    function, arguments, named = pickle.loads(bytes.fromhex(begun.partition(b"\n")[0].decode()))
    refused = answer = None
    try:
        answer = function(*arguments, **named)
    except TrainmasterError as error:
        refused = error.code, error.message, error.fix
    sys.stdout.buffer.write(pickle.dumps((refused, answer)))


def _listen() -> None:
    while _received():
        _is_over.set()


def _received() -> bytes:
    # Unbuffered: the listening thread would hold a buffer's lock while the interpreter ends.
    data = os.read(sys.stdin.fileno(), 1 << 16)
    if not data:
        os._exit(1)
    return data
