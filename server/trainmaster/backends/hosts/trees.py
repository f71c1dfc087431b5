"""Sends a tree of files to a machine; `trainer_runtime/host/answer/receive.py` receives it over
there.

The program goes first through the same channel, so that nothing need be there but Python. The
sender reads and hashes in a thread, a block ahead of what is on its way, and never waits for a
file's acknowledgement.
"""

from __future__ import annotations

import asyncio
import json
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trainer_runtime.core.decoding import MAX_DOCUMENT_BYTES, DecodingError, decode_fields
from trainer_runtime.core.protocol.command import command
from trainmaster.backends.hosts.host import Host
from trainmaster.backends.hosts.tree_files import Contents, TreeFile, changed, list_tree
from trainmaster.backends.ssh import Stream
from trainmaster.errors.errors import HostError
from trainmaster.home.assets import find_assets

# Runs the program at the beginning of standard input, of this many bytes.
BOOTSTRAP = "import sys;exec(sys.stdin.buffer.read(int(sys.argv[1])))"
_FRAME = struct.Struct(">cI")
# More than a frame: each hop between the threads costs both of them.
_AT_ONCE_BYTES = 4 << 20
_ANSWER_BYTES = 1 << 16
_PING_EVERY_S = 10.0
# Error codes of the receiving side: the fix, and whether the same call may succeed later.
_REFUSALS = {
    "DISK_FULL": ("Free some room there, or give the host another cache or root.", True),
    "ROOT_NOT_WRITABLE": (
        "Make the folder writable, or give the host another cache or root.",
        False,
    ),
    "UPLOAD_LOCKED": ("Check that process there, end it if it hangs, and try again.", True),
    "UNSAFE_NAME": ("Rename it, or leave it out.", False),
    "DIGEST_MISMATCH": (
        "Try again; if it comes back, check the disks and memory of both sides.",
        True,
    ),
    "HOST_CALL_FAILED": (f"Check the host with {command('hosts check', 'NAME')}.", False),
}


@dataclass(frozen=True, slots=True)
class TreeProgress:
    """`done_bytes` of `total_bytes` are there, what was there before included; `files` of them
    came just now. `waiting`: another sender is at the same destination."""

    done_bytes: int
    total_bytes: int
    files: int = 0
    waiting: bool = False


@dataclass(frozen=True, slots=True)
class Sent:
    """`kept`: the whole destination was there before. `sent_bytes`: of files' content."""

    kept: bool
    sent_bytes: int
    sent_files: int


OnTreeProgress = Callable[[TreeProgress], None]


async def put_tree(
    host: Host,
    local: Path | Mapping[str, bytes] | Sequence[TreeFile],
    destination: str,
    *,
    executable: frozenset[str] = frozenset(),
    whole: bool = False,
    mark: bool = False,
    near: str | None = None,
    compiles: bool = False,
    patience_s: float = 300.0,
    on_progress: OnTreeProgress | None = None,
) -> Sent:
    """Make `destination` hold exactly the regular files of `local`; may be repeated, and resumes
    where it was interrupted.

    `local`: a folder, files' contents by name (`executable` of them with that permission), or files
    listed one by one. `whole`: the destination comes to be at once or not at all, and is kept where
    it is there. `mark`: `.complete` in it, written last, lists what it holds. `near`: a folder of
    the machine; read-only files that it has too are linked rather than sent. `compiles`: Python's
    modules get bytecode. `patience_s`: another sender at the same destination is waited for as long
    as it has not stood still for that time.

    Raises:
        HostError: `DISK_FULL`, `ROOT_NOT_WRITABLE`, `DIGEST_MISMATCH`, `UNSAFE_NAME` as the machine
            says, `UPLOAD_LOCKED` with who holds the destination, `LINK_LOST` where the connection
            or the other side ended on the way.
        PlanError: `DATA_CHANGED`, a file changed or went while it was sent.
    """
    files = await asyncio.to_thread(list_tree, local, executable)
    program = (find_assets().runtime / "host" / "answer" / "receive.py").read_bytes()
    command = [await host.python(), "-c", BOOTSTRAP, str(len(program))]
    header = {
        "destination": destination,
        "whole": whole,
        "mark": mark,
        "near": near,
        "compile": compiles,
        "patience_s": patience_s,
        "files": [[f.name, f.size_bytes, f.modified_ns, f.mode, f.sha256] for f in files],
    }
    async with host.stream(command, folder="/") as stream:
        sending = _Upload(host.name, stream, files, on_progress)
        await stream.write(program + _frame(b"H", json.dumps(header).encode()))
        return await sending.run()


class _Upload:
    """One conversation with the receiving side."""

    def __init__(
        self,
        host: str,
        stream: Stream,
        files: Sequence[TreeFile],
        on_progress: OnTreeProgress | None,
    ) -> None:
        self._host = host
        self._stream = stream
        self._files = files
        self._on_progress = on_progress
        self._total_bytes = sum(file.size_bytes for file in files)
        self._there_bytes = 0
        self._unread = b""
        self._writing = asyncio.Lock()
        self._wrote_s = 0.0

    async def run(self) -> Sent:
        need = await self._need()
        if need is None:
            return Sent(kept=True, sent_bytes=0, sent_files=0)
        missing = sum(self._files[index].size_bytes - offset for index, offset, _ in need)
        self._there_bytes = self._total_bytes - missing
        self._report(TreeProgress(self._there_bytes, self._total_bytes))
        blocks = _Blocks(self._files, need)
        sending = [asyncio.create_task(self._send(blocks)), asyncio.create_task(self._ping())]
        try:
            await self._until_done(sending[0])
        finally:
            for task in sending:
                task.cancel()
            await asyncio.gather(*sending, return_exceptions=True)
        return Sent(kept=False, sent_bytes=blocks.sent_bytes, sent_files=len(need))

    async def _need(self) -> list[tuple[int, int, str | None]] | None:
        """The files that the other side lacks; None where it keeps what it has."""
        while (answer := await self._answer()).get("waiting"):
            self._report(TreeProgress(0, self._total_bytes, waiting=True))
        return None if answer["kept"] else [(row[0], row[1], row[2]) for row in answer["need"]]

    async def _until_done(self, sending: asyncio.Task[None]) -> None:
        answering = asyncio.create_task(self._answer())
        try:
            while True:
                watched = {answering} if sending.done() else {answering, sending}
                await asyncio.wait(watched, return_when=asyncio.FIRST_COMPLETED)
                if answering.done():
                    answer = answering.result()
                    if answer.get("done"):
                        return
                    done_bytes = self._there_bytes + answer["bytes"]
                    self._report(TreeProgress(done_bytes, self._total_bytes, answer["stored"]))
                    answering = asyncio.create_task(self._answer())
                elif sending.exception() is not None:
                    sending.result()
        finally:
            answering.cancel()
            await asyncio.gather(answering, return_exceptions=True)

    async def _send(self, blocks: _Blocks) -> None:
        ahead = asyncio.create_task(asyncio.to_thread(blocks.next))
        try:
            while block := await ahead:
                ahead = asyncio.create_task(asyncio.to_thread(blocks.next))
                await self._write(block)
        finally:
            await asyncio.gather(ahead, return_exceptions=True)  # no thread reads on unwatched
        await self._write(_frame(b"Z", b""))
        await self._stream.finish()

    async def _ping(self) -> None:
        """Keep the connection alive: the other side takes a long silence for the sender's end."""
        while True:
            await asyncio.sleep(_PING_EVERY_S)
            if asyncio.get_running_loop().time() - self._wrote_s >= _PING_EVERY_S:
                await self._write(_frame(b"N", b""))

    async def _write(self, data: bytes) -> None:
        async with self._writing:
            await self._stream.write(data)
            self._wrote_s = asyncio.get_running_loop().time()

    async def _answer(self) -> dict[str, Any]:
        """The other side's next line.

        Raises:
            HostError: it reports an error, or has ended without one.
        """
        while b"\n" not in self._unread:
            data = await self._stream.read(_ANSWER_BYTES)
            if not data:
                raise await self._ended()
            self._unread += data
            if len(self._unread) > MAX_DOCUMENT_BYTES:
                raise self._unreadable()
        line, _, self._unread = self._unread.partition(b"\n")
        try:
            answer = decode_fields(line, "answer", max_bytes=MAX_DOCUMENT_BYTES)
            error = answer.text_map("error")
        except DecodingError as refused:
            raise self._unreadable() from refused
        if error:
            raise self._refused(error)
        return dict(answer.values)

    def _unreadable(self) -> HostError:
        return HostError(
            "HOST_DATA_REFUSED",
            f"What the receiving side on {self._host} answers is invalid or beyond the limits.",
            f"{command('hosts check', self._host)}, then try again: what has arrived is kept.",
        )

    async def _ended(self) -> HostError:
        code, errors = await self._stream.end()
        last = errors.strip()[-300:]
        return HostError(
            "LINK_LOST",
            f"The receiving side on {self._host} ended too early (exit code {code})"
            f"{f': {last}' if last else '.'}",
            "Try again: what has arrived is kept.",
            retryable=True,
        )

    def _refused(self, error: Mapping[str, str]) -> HostError:
        code = error["code"] if error.get("code") in _REFUSALS else "HOST_CALL_FAILED"
        fix, retryable = _REFUSALS[code]
        message = f"{self._host} did not take the files: {error.get('message', 'no reason')}."
        return HostError(code, message, fix, retryable)

    def _report(self, progress: TreeProgress) -> None:
        if self._on_progress is not None:
            self._on_progress(progress)


class _Blocks:
    """The frames of the files that are needed, gathered into blocks. Used by one thread at a time.

    `sent_bytes` counts what they hold of files.
    """

    def __init__(
        self, files: Sequence[TreeFile], need: Sequence[tuple[int, int, str | None]]
    ) -> None:
        self.sent_bytes = 0
        self._files = files
        self._need = need
        self._frames = self._all_frames()

    def next(self) -> bytes:
        """A few MiB; empty after the last."""
        gathered: list[bytes] = []
        size = 0
        for frame in self._frames:
            gathered.append(frame)
            size += len(frame)
            if size >= _AT_ONCE_BYTES:
                break
        return b"".join(gathered)

    def _all_frames(self) -> Iterator[bytes]:
        for index, offset, digest in self._need:
            file = self._files[index]
            try:
                yield from self._frames_of(index, file, offset, digest)
            except OSError as error:
                raise changed(file, f"can't be read: {error.strerror}") from error

    def _frames_of(
        self, index: int, file: TreeFile, offset: int, digest: str | None
    ) -> Iterator[bytes]:
        contents = Contents(file)
        try:
            if contents.skip(offset) != digest:
                offset = 0  # what has arrived is not what was sent
                contents.restart()
            yield _frame(b"F", json.dumps([index, offset]).encode())
            while data := contents.read():
                self.sent_bytes += len(data)
                yield _FRAME.pack(b"D", len(data))
                yield data
            yield _frame(b"E", contents.digest().encode())
        finally:
            contents.close()


def _frame(kind: bytes, data: bytes) -> bytes:
    return _FRAME.pack(kind, len(data)) + data
