"""Reads a log file that is given in place of a run."""

from __future__ import annotations

import os
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from trainer_runtime.core.files.protected import open_unprotected
from trainer_runtime.core.inputs.carriers import HEAD_BYTES, carrier_of
from trainer_runtime.core.protocol.command import command
from trainer_runtime.core.protocol.figures import size_text
from trainer_runtime.core.protocol.log_text import is_binary
from trainmaster.calls.work import spend
from trainmaster.errors.errors import StateError, UsageError
from trainmaster.metrics.unwrap import TooLarge, unwrapped
from trainmaster.sync.workspace import Workspace

_CHUNK_BYTES = 1 << 20
_MOST_UNPACKED_BYTES = 1 << 30
_LOG_SUFFIXES = (".log", ".txt", ".out", ".err", ".jsonl", ".gz", ".xz", ".bz2", ".ipynb")


def log_file(workspace: Workspace, name: str) -> Path | None:
    """The real path of the file that `name` is the path of; None where it names a run.

    Raises:
        StateError: `RUN_NOT_FOUND` where it is neither.
        UsageError: `LOG_NOT_READABLE`, Trainmaster keeps secrets in the file.
        PolicyError: `POLICY_FILE`, the caller may not read it, whether it exists or not.
    """
    try:
        workspace.control.run(name)
    except StateError:
        is_path = _is_meant_as_path(name)
        if is_path or os.path.exists(name):
            path = readable(workspace, name, "run_id")
            if os.path.exists(path):
                return path
        if is_path:
            raise _neither(name) from None
        raise
    return None


def readable(workspace: Workspace, path: str, place: str) -> Path:
    """The real path of a log that may be shown to the caller, often an agent.

    Raises:
        UsageError: `LOG_NOT_READABLE`, the file holds keys or settings of the home.
        PolicyError: `POLICY_FILE`.
    """
    real = workspace.policy.check_readable(path, place)
    if workspace.home.keeps_private(real):
        raise not_readable(Path(path), "Trainmaster keeps secrets or settings there")
    return real


def _is_meant_as_path(name: str) -> bool:
    return "\0" not in name and (os.sep in name or name.endswith(_LOG_SUFFIXES))


def _neither(name: str) -> StateError:
    where = "" if os.path.isabs(name) else f" in {Path.cwd()}"
    return StateError(
        "RUN_NOT_FOUND",
        f"No file {name!r} exists{where}, and no run has that name.",
        f"Check the path; {command('runs')} lists the runs.",
    )


def read_chunks(path: Path) -> Iterator[bytes]:
    """The file in chunks, up to its size at the time of opening.

    Raises:
        UsageError: `LOG_NOT_READABLE` where it is not a regular file, or can't be read.
    """
    with open_log(path) as file:
        yield from chunks_between(path, file, 0, os.fstat(file.fileno()).st_size)


def chunks_between(path: Path, file: BinaryIO, begin: int, end: int) -> Iterator[bytes]:
    """A part of the open file in chunks, or less where the file ends before.

    Raises:
        UsageError: `LOG_NOT_READABLE`.
        StateError: `READ_TOO_LONG`.
    """
    while begin < end:
        try:
            chunk = read_block(file, begin, min(_CHUNK_BYTES, end - begin))
        except OSError as error:
            raise not_readable(path, error) from error
        if not chunk:
            return
        begin += len(chunk)
        yield chunk


def read_block(file: BinaryIO, offset: int, size: int) -> bytes:
    """So many bytes of the open file, or those that it has there: one step of the call's work.

    Raises:
        OSError
        StateError: `READ_TOO_LONG`.
    """
    spend(size)
    return os.pread(file.fileno(), size, offset)


def read_text(path: Path) -> Iterator[bytes]:
    """The same for a file that must be text.

    Raises:
        UsageError: `LOG_NOT_READABLE`, also where its beginning is binary.
    """
    checked = False
    for chunk in read_chunks(path):
        if not checked and chunk.strip(b"\0"):
            checked = True
            refuse_binary(path, chunk)
        yield chunk


def refuse_binary(path: Path, begin: bytes) -> None:
    """Raises:
    UsageError: `LOG_NOT_READABLE`, the file is binary.
    """
    if is_binary(begin):
        raise not_readable(path, "it holds binary data")


def open_log(path: Path) -> BinaryIO:
    """The text of a regular file, unbuffered; `path` is its real one.

    What it is wrapped in (compression, UTF-16, a container's JSON, a notebook) is removed once,
    into a file without a name: all who read logs see the same text.

    Raises:
        UsageError: `LOG_NOT_READABLE`, also where a link was put in its way meanwhile, and where
            more is packed in it than may be unpacked.
    """
    file = _opened(path)
    head = b"".join(chunks_between(path, file, 0, HEAD_BYTES))
    if carrier_of(head) is None:
        return file
    with file:
        return _unwrapped(path, file)


def _unwrapped(path: Path, file: BinaryIO) -> BinaryIO:
    text: BinaryIO = tempfile.TemporaryFile(buffering=0)  # noqa: SIM115  # the caller closes it
    whole = chunks_between(path, file, 0, os.fstat(file.fileno()).st_size)
    try:
        for chunk in unwrapped(whole, _MOST_UNPACKED_BYTES):
            spend(len(chunk))
            text.write(chunk)
    except BaseException as error:
        text.close()
        if isinstance(error, TooLarge):
            most = size_text(_MOST_UNPACKED_BYTES)
            raise not_readable(path, f"unpacked it has more than {most}") from None
        if isinstance(error, OSError):
            raise not_readable(path, f"no room to unpack it ({_reason(error)})") from error
        raise
    return text


def _opened(path: Path) -> BinaryIO:
    try:
        # Non-blocking: the other end of a pipe may never be opened.
        file = os.fdopen(open_unprotected(path, os.O_NONBLOCK, real=path), "rb", buffering=0)
    except OSError as error:
        raise not_readable(path, error) from error
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode) or not _has_an_end(file):
        file.close()
        raise not_readable(path, "it is not a regular file")
    return file


def _has_an_end(file: BinaryIO) -> bool:
    """Whether it has one to read from, as the memory of a process has none."""
    try:
        os.lseek(file.fileno(), 0, os.SEEK_END)
        os.lseek(file.fileno(), 0, os.SEEK_SET)
    except OSError:
        return False
    return True


def not_readable(path: Path, why: str | OSError) -> UsageError:
    reason = why if isinstance(why, str) else _reason(why)
    return UsageError(
        "LOG_NOT_READABLE",
        f"{path} can't be read as a log: {reason}.",
        "Give the path of a text file that you may read.",
    )


def _reason(error: OSError) -> str:
    return error.strerror or type(error).__name__
