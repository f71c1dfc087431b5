"""Receives a tree of files over standard input and reports progress over standard output.

One file, standard library, nothing of ours imported: it is sent ahead of the data through
`python3 -c 'import sys;exec(sys.stdin.buffer.read(int(sys.argv[1])))' LENGTH`, so that nothing need
be there before, and written so that Python 3.8 can read it.

In come frames, `>cI` kind and length, then so many bytes:
    H  JSON {"destination", "whole", "mark", "files": [[name, size, mtime_ns, mode, sha256], ...]};
       of mtime_ns and sha256 either may be null; "patience_s": how long to wait for another sender
       at the destination that does not come on; "near": a folder of this machine with files of the
       same names, or null; "compile": whether Python modules get bytecode
    F  JSON [index, offset]: what follows is this file from there on
    D  at most a MiB of it
    E  its sha256, as hexadecimal digits: the file is all there
    N  nothing, so that a pause between the others does not count as silence
    Z  everything was sent
Out go lines of JSON, in this order:
    {"waiting": true}   another sender is at the same destination
    {"need": [[index, offset, sha256 of what is there up to offset], ...], "kept": bool}
    {"stored": files, "bytes": bytes}   a few times a second: what has been taken in by now
    {"done": true} or {"error": {"code", "message"}}

What is there in the same size and with the same time of change (or the same sha256, where that is
given) is not asked for; what the listing does not name is removed. A file counts once it is whole,
on the disk, and renamed into its place. `whole`: the destination is created at once or not
at all, and an existing one is kept. `mark`: `.complete` in the destination lists what it holds,
written last. Read-only files are linked to those of the same sha256 in `near`, with their bytecode.
Partial data is in `.<name>.receiving` beside the destination. An upload that
was killed, or that ran out of room, resumes from there; if it is little, a full disk gets it back.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import json
import os
import select
import shutil
import stat
import struct
import sys
import threading
import time
from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from typing import Any, BinaryIO

MARKER = b".complete"
_FRAME = struct.Struct(">cI")
_LARGEST_FRAME_BYTES = 1 << 20
_LARGEST_HEADER_BYTES = 1 << 30
_LONGEST_NAME_BYTES = 255
# A sender that is silent for this long counts as disconnected: another one may continue.
_SILENCE_S = 60
_ACKNOWLEDGE_EVERY_S = 0.25
_LOCK_POLL_S = 0.2
# Files that are on their way to the disk at once: one commit of its journal serves them all.
_FINISHING = 32
_FLUSH_EVERY_BYTES = 64 << 20
_PATIENCE_S = 300.0
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
# Sending so little again is faster than searching for it.
_LITTLE_BYTES = 16 << 20
_WRITABLE = 0o222


class Refusal(Exception):
    """The upload is refused; `code` is one of the client's error codes."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


class SenderGone(Exception):
    """The input ended too early."""


class Listed:
    """One file of the listing."""

    __slots__ = ("mode", "modified_ns", "name", "sha256", "size_bytes", "text")

    def __init__(self, row: list[Any]) -> None:
        self.text, self.size_bytes, self.modified_ns, self.mode, self.sha256 = row
        # Bytes, so that this machine's locale has no say in what a file is called.
        self.name: bytes = self.text.encode("utf-8", "surrogateescape")

    @property
    def identity(self) -> bytes:
        """Names what has arrived of it; another size, time or content is another file."""
        identity = [self.name.hex(), self.size_bytes, self.modified_ns, self.sha256]
        return hashlib.sha256(json.dumps(identity).encode()).hexdigest()[:32].encode() + b".part"


class Header:
    """What the sender wants."""

    def __init__(self, data: bytes) -> None:
        header = json.loads(data)
        self.destination: bytes = header["destination"].encode("utf-8", "surrogateescape")
        self.whole = bool(header["whole"])
        self.mark = bool(header["mark"])
        self.patience_s = float(header.get("patience_s", _PATIENCE_S))
        self.near: bytes = (header.get("near") or "").encode("utf-8", "surrogateescape")
        self.compiles = bool(header.get("compile"))
        self.files = [Listed(row) for row in header["files"]]
        _check_destination(self.destination)
        self.parents = _check_names(self.files, self.mark)

    def marker(self) -> bytes:
        """What `.complete` will hold: the listing and its digest."""
        listed = json.dumps([[file.text, file.size_bytes, file.modified_ns] for file in self.files])
        digest = hashlib.sha256(listed.encode()).hexdigest()
        return f'{{"digest": "{digest}", "files": {listed}}}\n'.encode()


def main() -> int:
    """Take in one tree; 0 once it is in place. The folders that it makes are its user's alone."""
    os.umask(0o077)
    source = Input(sys.stdin.buffer)
    threading.Thread(target=source.watch, daemon=True).start()
    try:
        _receive(source)
    except Refusal as refusal:
        return _refuse(refusal.code, str(refusal))
    except OSError as error:
        if error.errno in _NO_ROOM:
            return _refuse("DISK_FULL", _error_text(error))
        return _refuse("ROOT_NOT_WRITABLE", _error_text(error))
    except (SenderGone, BrokenPipeError):
        return 1
    return 0


class Input:
    """The sender's frames."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream: Any = stream
        self._buffer = memoryview(bytearray(_LARGEST_FRAME_BYTES))
        self._waiting_since: float | None = None

    def watch(self) -> None:
        """End this process when a sender has been silent for too long."""
        while True:
            time.sleep(_SILENCE_S / 10)
            since = self._waiting_since
            if since is not None and time.monotonic() - since > _SILENCE_S:
                os._exit(1)

    def frame(self) -> tuple[bytes, memoryview]:
        """The next one that says something; its bytes hold until the one after."""
        while True:
            kind, length = _FRAME.unpack(self._exactly(self._buffer[: _FRAME.size]))
            if length > (_LARGEST_HEADER_BYTES if kind == b"H" else _LARGEST_FRAME_BYTES):
                raise Refusal("INTERNAL", f"a frame of {length} bytes was announced")
            room = self._buffer if length <= len(self._buffer) else memoryview(bytearray(length))
            data = self._exactly(room[:length])
            if kind != b"N":
                return kind, data

    def _exactly(self, room: memoryview) -> memoryview:
        filled = 0
        while filled < len(room):
            self._waiting_since = time.monotonic()
            got = self._stream.readinto1(room[filled:])
            self._waiting_since = None
            if not got:
                raise SenderGone
            filled += got
        return room


def _receive(source: Input) -> None:
    kind, data = source.frame()
    if kind != b"H":
        raise Refusal("INTERNAL", "no header came")
    header = Header(bytes(data))
    if header.whole and os.path.lexists(header.destination):
        _answer({"need": [], "kept": True})
        _answer({"done": True})
        return
    os.makedirs(os.path.dirname(header.destination), exist_ok=True)
    work = Work(header.destination, header.patience_s)
    try:
        if header.whole and os.path.lexists(header.destination):  # by whom we waited for
            _answer({"need": [], "kept": True})
        else:
            _take(source, header, work)
        work.remove()
    except OSError as error:
        if error.errno in _NO_ROOM:
            raise _no_room(header, work, error) from error
        raise
    finally:
        work.release()
    _answer({"done": True})


def _no_room(header: Header, work: Work, error: OSError) -> Refusal:
    """What a full disk lacks for this tree; what is worth keeping of it stays."""
    place = _shown(header.destination)
    total = sum(file.size_bytes for file in header.files)
    kept = total > _LITTLE_BYTES
    if not kept:
        with suppress(OSError):
            work.remove()
    disk = os.statvfs(os.path.dirname(header.destination))
    free = _size(disk.f_bavail * disk.f_frsize)
    stays = f"; what has arrived stays in {_shown(work.folder)}" if kept else ""
    reason = f"{error.strerror}, {free} free of the {_size(total)} that it takes in all"
    return Refusal("DISK_FULL", f"no room left for {place} ({reason}){stays}")


def _size(count: int) -> str:
    return f"{count / (1 << 30):.1f} GiB" if count >= 1 << 30 else f"{count / (1 << 20):.1f} MiB"


class Work:
    """The folder beside the destination that holds what is half done, locked.

    Raises:
        Refusal: `UPLOAD_LOCKED`, another sender is at it and does not come on.
        SenderGone: nobody waits for it any more.
    """

    def __init__(self, destination: bytes, patience_s: float) -> None:
        parent, base = os.path.split(destination)
        self._patience_s = patience_s
        self.folder = os.path.join(parent, b"." + base + b".receiving")
        self.tree = os.path.join(self.folder, b"tree")
        self._lock = os.path.join(self.folder, b"lock")
        self._descriptor = self._take_lock()

    def part(self, file: Listed) -> bytes:
        return os.path.join(self.folder, file.identity)

    def keep_only(self, files: list[Listed], tree: bool) -> None:
        """Remove what earlier senders of something else have left."""
        kept = {file.identity for file in files} | {b"lock"} | ({b"tree"} if tree else set())
        for name in os.listdir(self.folder):
            if name not in kept:
                _remove(os.path.join(self.folder, name))

    def remove(self) -> None:
        self.keep_only([], False)
        os.unlink(self._lock)
        try:
            os.rmdir(self.folder)
        except OSError as error:
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):  # the next sender is there
                raise

    def release(self) -> None:
        os.close(self._descriptor)

    def holder(self) -> str:
        """Who has the lock, in words."""
        try:
            with open(self._lock) as file:
                holder = json.load(file)
            since = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(holder["since"]))
            return f"process {int(holder['pid'])}, there since {since},"
        except (OSError, ValueError, KeyError, TypeError):
            return "another process"

    def arrived(self) -> tuple[int, ...]:
        """Changes whenever something has arrived, or has been put into place."""
        names: list[bytes] = []
        with suppress(OSError):
            names = sorted(os.listdir(self.folder))
        stats: list[int] = []
        for path in [self.folder, *(os.path.join(self.folder, name) for name in names)]:
            with suppress(OSError):  # it has just been put into place
                status = os.lstat(path)
                stats += [status.st_size, status.st_mtime_ns]
        return tuple(stats)

    def _take_lock(self) -> int:
        waiting: _Waiting | None = None
        while True:
            try:
                os.mkdir(self.folder)
            except FileExistsError:
                if os.path.islink(self.folder):
                    os.unlink(self.folder)
                    continue
            try:
                flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
                descriptor = os.open(self._lock, flags, 0o600)
            except FileNotFoundError:  # its holder has just removed the folder
                continue
            while not self._locked(descriptor):
                waiting = waiting or _Waiting(self, self._patience_s)
                waiting.check()
            if self._is_current(descriptor):
                os.ftruncate(descriptor, 0)
                os.write(
                    descriptor, json.dumps({"pid": os.getpid(), "since": time.time()}).encode()
                )
                return descriptor
            os.close(descriptor)

    def _locked(self, descriptor: int) -> bool:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def _is_current(self, descriptor: int) -> bool:
        """Whether the lock is still the one that others would find."""
        try:
            there = os.stat(self._lock)
        except FileNotFoundError:
            return False
        return os.path.samestat(there, os.fstat(descriptor))


class _Waiting:
    """Waiting for another sender, for as long as that comes on."""

    def __init__(self, work: Work, patience_s: float) -> None:
        self._work, self._patience_s = work, patience_s
        self._arrived = work.arrived()
        self._since = time.monotonic()
        _answer({"waiting": True})

    def check(self) -> None:
        """Wait a little.

        Raises:
            Refusal: `UPLOAD_LOCKED`.
            SenderGone: who waits for an answer sends nothing, so what can be read is the end.
        """
        arrived, now = self._work.arrived(), time.monotonic()
        if arrived != self._arrived:
            self._arrived, self._since = arrived, now
        if now - self._since > self._patience_s:
            nothing = f"has taken in nothing for {self._patience_s:.0f} s"
            raise Refusal(
                "UPLOAD_LOCKED",
                f"{self._work.holder()} holds {_shown(self._work.folder)} and {nothing}",
            )
        readable, _, _ = select.select([sys.stdin], [], [], _LOCK_POLL_S)
        if readable:
            raise SenderGone


def _take(source: Input, header: Header, work: Work) -> None:
    root = work.tree if header.whole else header.destination
    if os.path.islink(root) or (os.path.lexists(root) and not os.path.isdir(root)):
        raise Refusal("UNSAFE_NAME", f"{_shown(root)} is there, and no folder")
    os.makedirs(root, exist_ok=True)
    work.keep_only(header.files, header.whole)
    listed = {file.name: file for file in header.files}
    marker, marking = os.path.join(root, MARKER), header.marker() if header.mark else None
    needed = [(index, file) for index, file in enumerate(header.files) if not _is_there(root, file)]
    if needed or _content(marker) != marking:
        _remove(marker)  # before anything changes: its readers trust that the rest is complete
    _remove_stale(root, b"", listed, header)
    _make_folders(root, header.parents)
    if header.near:
        needed = [(index, file) for index, file in needed if not _link(header.near, root, file)]
    need = [[index, *_arrived(work.part(file))] for index, file in needed]
    _answer({"need": need, "kept": False})
    store = Store(header, work, root, dict(needed))
    try:
        store.take_all(source)
    finally:
        store.close()
    if header.compiles:
        _compile(root, header.destination)
    for folder in sorted({os.path.join(root, parent) for parent in header.parents} | {root}):
        _sync(folder)
    if marking is not None and _content(marker) != marking:
        _write_marker(work, marker, marking)
        _sync(root)
    if header.whole:
        os.rename(root, header.destination)
    _sync(os.path.dirname(header.destination))


class Store:
    """Writes what comes into parts, and has whole ones brought to the disk and into place."""

    def __init__(self, header: Header, work: Work, root: bytes, missing: dict[int, Listed]) -> None:
        self._header = header
        self._work = work
        self._root = root
        self._missing = missing
        self._pool = ThreadPoolExecutor(max_workers=8)
        self._finishing: deque[tuple[Listed, Future[None]]] = deque()
        self._flushing: Future[None] | None = None
        self._files, self._bytes = 0, 0
        self._acknowledged_s = time.monotonic()

    def take_all(self, source: Input) -> None:
        """Until the sender says that this was everything.

        Raises:
            Refusal: `DIGEST_MISMATCH`, or something else came than was asked for.
        """
        while True:
            kind, data = source.frame()
            if kind == b"Z":
                break
            if kind != b"F":
                raise Refusal("INTERNAL", f"a frame {kind!r} came between files")
            index, offset = json.loads(bytes(data))
            if index not in self._missing:
                raise Refusal("INTERNAL", f"file {index!r} was not asked for")
            self._take_one(source, self._missing.pop(index), int(offset))
        while self._finishing:
            self._settle()
        if self._missing:
            raise Refusal("INTERNAL", f"{len(self._missing)} files did not come")
        self._acknowledge(now=True)

    def close(self) -> None:
        self._pool.shutdown(wait=True)

    def _take_one(self, source: Input, file: Listed, offset: int) -> None:
        part = self._work.part(file)
        descriptor = os.open(part, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        hasher, size = _resume(descriptor, offset), offset
        while True:
            kind, data = source.frame()
            if kind != b"D":
                break
            hasher.update(data)
            _write(descriptor, data)
            size += len(data)
            self._bytes += len(data)
            if size % _FLUSH_EVERY_BYTES < len(data):
                self._flush(descriptor)
            self._acknowledge()
        self._settle_flush()
        if kind != b"E":
            raise Refusal("INTERNAL", f"a frame {kind!r} came within a file")
        _check(file, part, size, hasher.hexdigest(), bytes(data).decode())
        self._finishing.append((file, self._pool.submit(self._finish, file, part, descriptor)))
        if len(self._finishing) >= _FINISHING:
            self._settle()

    def _flush(self, descriptor: int) -> None:
        """Let the disk work while more comes in; at most one such round at a time."""
        if self._flushing is None or self._flushing.done():
            self._flushing = self._pool.submit(os.fdatasync, descriptor)

    def _settle_flush(self) -> None:
        if self._flushing is not None:
            flushing, self._flushing = self._flushing, None
            flushing.result()

    def _finish(self, file: Listed, part: bytes, descriptor: int) -> None:
        try:
            os.fchmod(descriptor, file.mode)
            if file.modified_ns is not None:
                os.utime(descriptor, ns=(file.modified_ns, file.modified_ns))
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        os.replace(part, os.path.join(self._root, file.name))

    def _settle(self) -> None:
        """Wait for the oldest file that is on its way to the disk."""
        _, finishing = self._finishing.popleft()
        finishing.result()
        self._files += 1
        self._acknowledge()

    def _acknowledge(self, now: bool = False) -> None:
        if now or time.monotonic() - self._acknowledged_s >= _ACKNOWLEDGE_EVERY_S:
            self._acknowledged_s = time.monotonic()
            _answer({"stored": self._files, "bytes": self._bytes})


def _check_destination(destination: bytes) -> None:
    safe = destination.startswith(b"/") and b"\0" not in destination
    if not safe or os.path.normpath(destination) != destination or len(destination) < 2:
        raise Refusal("UNSAFE_NAME", f"the destination {_shown(destination)} can't be used")


def _check_names(files: list[Listed], mark: bool) -> set[bytes]:
    """The folders that the files lie in.

    Raises:
        Refusal: `UNSAFE_NAME`.
    """
    names = {file.name for file in files}
    parents: set[bytes] = set()
    for name in names:
        parts = name.split(b"/")
        bad = any(part in (b"", b".", b"..") or len(part) > _LONGEST_NAME_BYTES for part in parts)
        if bad or b"\0" in name or (mark and name == MARKER):
            raise Refusal("UNSAFE_NAME", f"a file can't be called {_shown(name)}")
        parents.update(b"/".join(parts[:depth]) for depth in range(1, len(parts)))
    if len(names) != len(files) or names & parents:
        raise Refusal("UNSAFE_NAME", "a name stands for two things")
    return parents


def _is_there(root: bytes, file: Listed) -> bool:
    """Whether the file is in place as it should be; its mode and time are corrected."""
    path = os.path.join(root, file.name)
    if _leads_through_link(root, file.name):
        return False
    try:
        status = os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return False
    if not stat.S_ISREG(status.st_mode) or status.st_size != file.size_bytes:
        return False
    same_time = file.modified_ns is not None and status.st_mtime_ns == file.modified_ns
    if not same_time and (file.sha256 is None or _digest(path) != file.sha256):
        return False
    if stat.S_IMODE(status.st_mode) != file.mode:
        os.chmod(path, file.mode)
    if not same_time and file.modified_ns is not None:
        os.utime(path, ns=(file.modified_ns, file.modified_ns))
    return True


def _leads_through_link(root: bytes, name: bytes) -> bool:
    folder = os.path.dirname(name)
    while folder:
        if os.path.islink(os.path.join(root, folder)):
            return True
        folder = os.path.dirname(folder)
    return False


def _remove_stale(root: bytes, folder: bytes, listed: dict[bytes, Listed], header: Header) -> None:
    """Remove all that the listing does not name, and what is in the way of what it names."""
    for name in os.listdir(os.path.join(root, folder)):
        inside = os.path.join(folder, name)
        path = os.path.join(root, inside)
        is_folder = os.path.isdir(path) and not os.path.islink(path)
        if inside in header.parents and is_folder:
            _remove_stale(root, inside, listed, header)
        elif inside in listed and not is_folder:
            continue
        elif not (header.mark and inside == MARKER):
            _remove(path)


def _arrived(part: bytes) -> tuple[int, str | None]:
    """How much of a file has arrived earlier, and its digest."""
    try:
        if not stat.S_ISREG(os.lstat(part).st_mode):
            _remove(part)
            return 0, None
        size = os.stat(part).st_size
    except FileNotFoundError:
        return 0, None
    return (size, _digest(part)) if size else (0, None)


def _link(near: bytes, root: bytes, file: Listed) -> bool:
    """Link a file and its bytecode to those of `near`, where they are what is listed."""
    source, target = os.path.join(near, file.name), os.path.join(root, file.name)
    if file.sha256 is None or file.mode & _WRITABLE or _leads_through_link(near, file.name):
        return False  # a change of the one would reach the other
    try:
        status = os.lstat(source)
        is_own = stat.S_ISREG(status.st_mode) and status.st_uid == os.geteuid()
        is_alike = (stat.S_IMODE(status.st_mode), status.st_size) == (file.mode, file.size_bytes)
        if not is_own or not is_alike or _digest(source) != file.sha256:
            return False
        os.link(source, target)
    except OSError:
        return False  # another disk, perhaps
    compiled = _bytecode(source)
    if source.endswith(b".py") and os.path.isfile(compiled):
        with suppress(OSError):  # compiled by each process that needs it
            os.makedirs(os.path.dirname(_bytecode(target)), exist_ok=True)
            os.link(compiled, _bytecode(target))
    return True


def _bytecode(module: bytes) -> bytes:
    """Where this interpreter keeps the bytecode of a module."""
    folder, name = os.path.split(module)
    tag = str(sys.implementation.cache_tag).encode()
    return os.path.join(folder, b"__pycache__", os.path.splitext(name)[0] + b"." + tag + b".pyc")


def _compile(root: bytes, destination: bytes) -> None:
    """Write the bytecode of the modules, read-only as they are. What can't be compiled here is
    compiled by each process that needs it."""
    import compileall

    with suppress(OSError):
        compileall.compile_dir(os.fsdecode(root), ddir=os.fsdecode(destination), quiet=2)
    folders = [place for place, _, _ in os.walk(root) if os.path.basename(place) == b"__pycache__"]
    compiled = [os.path.join(folder, name) for folder in folders for name in os.listdir(folder)]
    with ThreadPoolExecutor(max_workers=_FINISHING) as pool:
        list(pool.map(_settle_bytecode, compiled))
    for folder in folders:
        _sync(folder)


def _settle_bytecode(path: bytes) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fchmod(descriptor, 0o400)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _make_folders(root: bytes, parents: set[bytes]) -> None:
    for folder in sorted(parents):
        os.makedirs(os.path.join(root, folder), exist_ok=True)


def _resume(descriptor: int, offset: int) -> Any:
    """The hash of the kept bytes of a part, truncated at `offset`."""
    os.ftruncate(descriptor, offset)
    hasher = hashlib.sha256()
    while data := os.read(descriptor, _LARGEST_FRAME_BYTES):
        hasher.update(data)
    return hasher


def _write(descriptor: int, data: memoryview) -> None:
    while data:
        data = data[os.write(descriptor, data) :]


def _check(file: Listed, part: bytes, size: int, computed: str, sent: str) -> None:
    expected = sent if file.sha256 is None else file.sha256
    if size != file.size_bytes or computed != expected or computed != sent:
        os.unlink(part)  # the next try starts again
        raise Refusal(
            "DIGEST_MISMATCH",
            f"{_shown(file.name)} arrived with {size} bytes and sha256 {computed[:12]} instead of "
            f"{file.size_bytes} and {expected[:12]}",
        )


def _write_marker(work: Work, marker: bytes, data: bytes) -> None:
    part = os.path.join(work.folder, b"marker")
    with open(part, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    os.replace(part, marker)


def _content(path: bytes) -> bytes | None:
    if os.path.islink(path) or not os.path.isfile(path):
        return None
    with open(path, "rb") as file:
        return file.read()


def _digest(path: bytes) -> str:
    hasher = hashlib.sha256()
    with open(path, "rb", buffering=0) as file:
        while data := file.read(_LARGEST_FRAME_BYTES):
            hasher.update(data)
    return hasher.hexdigest()


def _remove(path: bytes) -> None:
    if os.path.isdir(path) and not os.path.islink(path):
        shutil.rmtree(path)
    elif os.path.lexists(path):
        os.unlink(path)


def _sync(folder: bytes) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _answer(fields: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(fields) + "\n")
    sys.stdout.flush()


def _refuse(code: str, message: str) -> int:
    with suppress(BrokenPipeError):
        _answer({"error": {"code": code, "message": message}})
    return 1


def _error_text(error: OSError) -> str:
    where = error.filename if error.filename is not None else b"a file"
    path = where if isinstance(where, bytes) else str(where).encode()
    return f"{_shown(path)}: {error.strerror}"


def _shown(path: bytes) -> str:
    text = path[-300:].decode("utf-8", "replace")
    return "".join(letter if letter.isprintable() else "?" for letter in text)


if __name__ == "__main__":
    sys.exit(main())
