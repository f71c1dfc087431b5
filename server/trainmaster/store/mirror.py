"""The operator's copy of what a placement said, byte for byte: the truth once the box is gone.

Secrets are masked at equal length before anything is written. Where an original was truncated or
replaced, what was mirrored of it is kept as `<name>.1`, `<name>.2` and so on, oldest first, and
`<name>` is again byte for byte the original.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trainer_runtime.core.protocol.followed_files import (
    APPENDED_IN_ATTEMPT,
    APPENDED_IN_RUN,
    REPLACED_IN_ATTEMPT,
    REPLACED_IN_RUN,
    TAIL_BYTES,
)
from trainmaster.store.masking import Mask

_FOLLOWING = "following.json"
_MASKED = b"*"


@dataclass(frozen=True, slots=True)
class PlacementMirror:
    """The mirror of one placement; names in it are those of the run's folder on the box."""

    root: Path

    def path(self, name: str) -> Path:
        return self.root / name

    def size(self, name: str) -> int:
        """Bytes mirrored so far: at the same time the cursor into the original."""
        try:
            return os.stat(f"{self.root}/{name}").st_size
        except FileNotFoundError:
            return 0

    def append(self, name: str, data: bytes) -> None:
        """Add what follows in the original. The caller holds the host's follower lock.

        Raises:
            OSError: the disk did not take all of it; what it took is cut off again.
        """
        path = f"{self.root}/{name}"
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
        try:
            descriptor = os.open(path, flags, 0o644)
        except FileNotFoundError:
            os.makedirs(os.path.dirname(path), exist_ok=True)
            descriptor = os.open(path, flags, 0o644)
        try:
            _write_all(descriptor, data)
        finally:
            os.close(descriptor)

    def replace(self, name: str, data: bytes, mtime_ns: int | None = None) -> None:
        """Put a whole file in the place of what was there; `mtime_ns`: when the original changed.

        Not forced to the disk: after a power cut it is copied again.
        """
        path = self.path(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = path.with_name(f".{path.name}.{os.getpid()}")
        try:
            temporary.write_bytes(data)
            if mtime_ns is not None:
                os.utime(temporary, ns=(mtime_ns, mtime_ns))
            os.replace(temporary, path)
        except OSError:
            temporary.unlink(missing_ok=True)
            raise

    def read(self, name: str, offset: int, limit: int) -> bytes:
        """At most `limit` bytes from `offset` on; empty where there is nothing (yet)."""
        try:
            descriptor = os.open(f"{self.root}/{name}", os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return b""
        try:
            there = os.fstat(descriptor).st_size - offset
            return os.pread(descriptor, max(0, min(limit, there)), offset)
        finally:
            os.close(descriptor)

    def attempts(self) -> list[int]:
        """The numbers of the attempts that anything is mirrored of."""
        folder = self.root / "attempts"
        names = os.listdir(folder) if folder.is_dir() else []
        return sorted(int(name) for name in names if name.isdigit())

    def generations(self, name: str) -> list[str]:
        """The names here of an appended file's generations, oldest first; the last is `name`."""
        folder, _, own_name = f"{self.root}/{name}".rpartition("/")
        try:
            names = os.listdir(folder)
        except FileNotFoundError:
            names = []
        numbers = [other.removeprefix(f"{own_name}.") for other in names if other != own_name]
        earlier = sorted(int(number) for number in numbers if number.isdecimal())
        return [*(f"{name}.{number}" for number in earlier), name]


class MirrorWriter:
    """The one way from a box into a placement's mirror. The caller holds the host's follower lock.

    `mask` gives what masks the run's secrets as they are known at that moment, None where it has
    none. Names are those of the run's folder, and are checked by the caller.
    """

    def __init__(self, mirror: PlacementMirror, mask: Callable[[], Mask | None]) -> None:
        self.mirror = mirror
        self._mask = mask
        self._sizes: dict[str, int] = {}
        self._inodes = _read_inodes(mirror)
        self._has_news_of_inodes = False

    def size(self, name: str) -> int:
        if name not in self._sizes:
            self._sizes[name] = self.mirror.size(name)
        return self._sizes[name]

    def tail(self, name: str) -> bytes:
        """The last bytes of the copy, as far back as they are surely the original's own."""
        size = self.size(name)
        begin = max(0, size - TAIL_BYTES)
        return self.mirror.read(name, begin, size - begin).rpartition(_MASKED)[2]

    def have(self) -> dict[str, list[Any]]:
        """What is mirrored, as `trainer_runtime follow` wants to be told."""
        told: dict[str, list[Any]] = {}
        for name in self._names(APPENDED_IN_RUN, APPENDED_IN_ATTEMPT):
            if size := self.size(name):
                tail = self.tail(name).decode("latin-1")
                told[name] = [size, self._inodes.get(name), tail]
            elif name in self._inodes:
                told[name] = [0, self._inodes[name], ""]
        for name in self._names(REPLACED_IN_RUN, REPLACED_IN_ATTEMPT):
            try:
                status = os.stat(f"{self.mirror.root}/{name}")
            except FileNotFoundError:
                continue
            told[name] = [status.st_size, status.st_mtime_ns]
        return told

    def append(self, name: str, data: bytes, *, final: bool) -> int:
        """Add what follows in the original; how many bytes of it are taken.

        The rest may be the beginning of a secret, and is to be given again with what follows it;
        nothing is left over where `data` is `final`.

        Raises:
            OSError: nothing was taken.
        """
        mask = self._mask()
        masked = data if mask is None else mask.apply(data, final=final)
        if masked:
            before = self.size(name)
            self.mirror.append(name, masked)
            self._sizes[name] = before + len(masked)
        return len(masked)

    def replace(self, name: str, data: bytes, mtime_ns: int | None = None) -> None:
        mask = self._mask()
        masked = data if mask is None else mask.apply(data, final=True)
        self.mirror.replace(name, masked, mtime_ns)

    def begin_anew(self, name: str, inode: int | None) -> str | None:
        """Put what is mirrored of a file aside: another one has taken its place.

        Its name from then on, None where there was nothing. May be repeated after a kill: what is
        there then is empty.
        """
        put_aside = None
        if self.mirror.size(name) > 0:
            *earlier, _ = self.mirror.generations(name)
            number = 1 + (int(earlier[-1].rpartition(".")[2]) if earlier else 0)
            put_aside = f"{name}.{number}"
            os.rename(self.mirror.path(name), self.mirror.path(put_aside))
            self.mirror.append(name, b"")
        self._sizes[name] = 0
        self.note_inode(name, inode)
        self.save()  # before anything of the new one, which would be put aside once more
        return put_aside

    def note_inode(self, name: str, inode: int | None) -> None:
        """Remember which file is mirrored, so that another one in its place is recognised."""
        if inode is None:
            self._inodes.pop(name, None)
        else:
            self._inodes[name] = inode
        self._has_news_of_inodes = True

    def save(self) -> None:
        """Keep what was noted. Not forced to the disk: without it there are fewer checks."""
        if self._has_news_of_inodes:
            told = json.dumps({"inodes": self._inodes}, separators=(",", ":"))
            self.mirror.replace(_FOLLOWING, told.encode())
            self._has_news_of_inodes = False

    def _names(self, in_run: tuple[str, ...], in_attempt: tuple[str, ...]) -> Iterator[str]:
        yield from in_run
        for number in self.mirror.attempts():
            for name in in_attempt:
                yield f"attempts/{number}/{name}"


@dataclass(frozen=True, slots=True)
class Mirror:
    root: Path

    def of(self, run_id: str, placement: int) -> PlacementMirror:
        return PlacementMirror(self.root / run_id / f"p{placement}")

    def placements(self) -> Iterator[tuple[str, int]]:
        """Every (run, placement) that anything is mirrored of."""
        for run in sorted(self.root.iterdir()) if self.root.is_dir() else []:
            for folder in sorted(run.iterdir()):
                if folder.name[:1] == "p" and folder.name[1:].isdigit():
                    yield run.name, int(folder.name[1:])


def _write_all(descriptor: int, data: bytes) -> None:
    before: int | None = None
    try:
        written = os.write(descriptor, data)
        while written < len(data):
            before = os.fstat(descriptor).st_size - written if before is None else before
            written += os.write(descriptor, memoryview(data)[written:])
    except OSError:
        if before is not None:
            os.ftruncate(descriptor, before)
        raise


def _read_inodes(mirror: PlacementMirror) -> dict[str, int]:
    try:
        inodes: dict[str, int] = json.loads(mirror.read(_FOLLOWING, 0, 1 << 24) or b"{}")["inodes"]
    except (ValueError, KeyError, TypeError):
        return {}
    return inodes
