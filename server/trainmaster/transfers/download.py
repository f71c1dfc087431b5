"""Downloads one file in verified pieces; a killed download resumes.

The file grows as `.NAME.part` beside its target and is renamed once every 64 MiB of it has the
expected digest. The next process verifies the part by the same digests, and downloads it again from
where it is of another version or damaged.
"""

from __future__ import annotations

import asyncio
import errno
import fcntl
import hashlib
import os
import stat
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from trainer_runtime.core.files.durable import sync_folder
from trainer_runtime.core.files.listing import ListedFile, count_chunks
from trainer_runtime.core.files.manifest import CHUNK_BYTES
from trainer_runtime.core.files.private import share
from trainer_runtime.core.protocol.command import command
from trainmaster.errors.errors import HostError, StorageError
from trainmaster.store.reserve import leaves_margin
from trainmaster.transfers.file_sources import FileSource

_RANGE_BYTES = 1 << 20
_RANGES_AHEAD = 4
_TRIES = 2


# Called with the number of bytes that have arrived since the last call.
Arrived = Callable[[int], None]


def is_there(file: ListedFile, target: Path) -> bool:
    """Whether the file was downloaded before: same size and modification time in nanoseconds."""
    try:
        status = target.lstat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    stamp = (status.st_size, status.st_mtime_ns)
    return stat.S_ISREG(status.st_mode) and stamp == (file.size_bytes, file.mtime_ns)


async def download(source: FileSource, file: ListedFile, target: Path, arrived: Arrived) -> None:
    """Download `file` to `target`. May be cancelled or killed at any moment, and called again.

    Raises:
        HostError: `DIGEST_MISMATCH`; or the host can't be reached.
        StorageError: `HOME_BUSY`, another process is fetching the same file.
        OSError: it can't be written.
    """
    if is_there(file, target):
        arrived(file.size_bytes)
        return
    part = target.with_name(f".{target.name}.part")
    descriptor = _open_part(part)
    try:
        if is_there(file, target):  # another process has just finished it
            part.unlink()
            return
        await _fill(source, file, descriptor, arrived)
        await asyncio.to_thread(os.fsync, descriptor)
        share(descriptor)
        os.utime(descriptor, ns=(file.mtime_ns, file.mtime_ns))
        os.replace(part, target)
        sync_folder(target.parent)
    finally:
        fcntl.flock(descriptor, fcntl.LOCK_UN)  # a thread in fsync would keep it beyond the close
        os.close(descriptor)


def _open_part(part: Path) -> int:
    while True:
        descriptor = os.open(part, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            with suppress(FileNotFoundError):  # renamed into place before it could be locked
                if os.path.samestat(os.fstat(descriptor), part.lstat()):
                    return descriptor
        except BlockingIOError:
            os.close(descriptor)
            raise StorageError(
                "HOME_BUSY",
                f"Another process is fetching {part.name[1:-5]} into the same folder.",
                "Let it finish, or fetch into another folder.",
                retryable=True,
            ) from None
        os.close(descriptor)


async def _fill(source: FileSource, file: ListedFile, descriptor: int, arrived: Arrived) -> None:
    """Complete the part; it can be resumed after a cancellation at any moment."""
    have = min(os.fstat(descriptor).st_size, file.size_bytes)
    os.ftruncate(descriptor, have)
    for chunk in range(count_chunks(file.size_bytes)):
        start = chunk * CHUNK_BYTES
        end = min(start + CHUNK_BYTES, file.size_bytes)
        position = max(start, min(have, end))
        arrived(position - start)
        tries = _TRIES + (position > start)  # what was there may be of another version
        while True:
            expected = asyncio.create_task(source.digest(file, chunk))  # meanwhile
            try:
                await _append(source, file, descriptor, (position, end), arrived)
                if await expected == await _digest(descriptor, start, end):
                    break
            finally:
                expected.cancel()
                await asyncio.gather(expected, return_exceptions=True)
            os.ftruncate(descriptor, start)
            have = position = start
            tries -= 1
            if tries == 0:
                raise _mismatch(file)


async def _append(
    source: FileSource,
    file: ListedFile,
    descriptor: int,
    between: tuple[int, int],
    arrived: Arrived,
) -> None:
    """Read a range, several pieces of it under way at a time, and write it in order."""
    position, end = between
    asked = position
    under_way: deque[asyncio.Task[bytes]] = deque()
    try:
        while position < end:
            while asked < end and len(under_way) < _RANGES_AHEAD:
                length = min(_RANGE_BYTES, end - asked)
                under_way.append(asyncio.create_task(_read(source, file, asked, length)))
                asked += length
            data = await under_way[0]
            under_way.popleft()
            _write(descriptor, data, position)
            position += len(data)
            arrived(len(data))
    finally:
        for task in under_way:
            task.cancel()
        await asyncio.gather(*under_way, return_exceptions=True)


def _write(descriptor: int, data: bytes, position: int) -> None:
    """Raises:
    OSError: `ENOSPC`, also where the disk would not keep its margin.
    """
    if not leaves_margin(descriptor, len(data)):
        raise OSError(errno.ENOSPC, "the disk has only its margin left")
    done = 0
    while done < len(data):
        done += os.pwrite(descriptor, data[done:], position + done)


async def _read(source: FileSource, file: ListedFile, offset: int, length: int) -> bytes:
    data = b""
    while len(data) < length:
        more = await source.read(file.path, offset + len(data), length - len(data))
        if not more:
            raise _mismatch(file)
        data += more
    return data


async def _digest(descriptor: int, start: int, end: int) -> str:
    hasher = hashlib.sha256()
    while start < end:
        data = os.pread(descriptor, min(_RANGE_BYTES, end - start), start)
        if not data:
            break  # truncated by another process: the digest will differ
        hasher.update(data)
        start += len(data)
        await asyncio.sleep(0)  # lets keep-alives run
    return hasher.hexdigest()


def _mismatch(file: ListedFile) -> HostError:
    return HostError(
        "DIGEST_MISMATCH",
        f"{file.path} does not match its digest: it is damaged on the host, or changes just now.",
        f"Fetch it again; {command('checkpoints', 'RUN', '--verify')} shows whether a checkpoint "
        "is damaged on the host.",
        retryable=True,
    )
