"""The parts of a checkpoint that ranks of several hosts have written, on their way to the first.

The ranks of a further node write to their own disk. `hand_over` moves what they wrote to
`checkpoints/.parts/<attempt>-<step>-<machine>`, from where that node's member sends it. On node 0
`Awaited` makes `checkpoints/.gathering/<attempt>-<step>`; below it, by the machine's number, is
what has come of each, whole. Machines are numbered as their ranks are. Node 0 takes parts only
while that folder exists, which the trainer alone makes and removes: none of an attempt that ended,
and none of a checkpoint that nobody awaits.
"""

from __future__ import annotations

import os
import re
import shutil
import time
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from trainer_runtime.core.files.manifest import FileEntry, file_problem
from trainer_runtime.core.protocol.figures import size_text, spoken_duration

_PARTS, _GATHERING = ".parts", ".gathering"
_INCOMPLETE = ".incomplete-"
_NAME = re.compile(r"([0-9]{1,9})-([0-9]{8,12})-([0-9]{1,6})")
# Without a byte for so long, a part does not come any more: its member is gone, or can't send.
STALLED_S = 300.0
_POLL_S = 0.1
# Rank 0 saves one checkpoint at a time, and the ranks of other nodes may be one ahead of it.
_ON_THEIR_WAY = 2


@dataclass(frozen=True, slots=True)
class Part:
    """What one machine's ranks have written of the checkpoint of an attempt's step."""

    attempt: int
    step: int
    machine: int

    @classmethod
    def named(cls, name: str) -> Part | None:
        match = _NAME.fullmatch(name)
        return None if match is None else cls(*map(int, match.groups()))

    @property
    def name(self) -> str:
        return f"{self.attempt}-{self.step:08d}-{self.machine}"


def hand_over(checkpoints: Path, part: Part, written: Path) -> None:
    """Have this node's member send what all ranks of this node have written below `written`.

    `written` is moved.

    Raises:
        OSError: it can't be moved.
    """
    folder = part_folder(checkpoints, part)
    folder.parent.mkdir(parents=True, exist_ok=True)
    shutil.rmtree(folder, ignore_errors=True)
    written.rename(folder)


def part_folder(checkpoints: Path, part: Part) -> Path:
    """Where a part lies on the node that wrote it."""
    return checkpoints / _PARTS / part.name


def handed_over(checkpoints: Path) -> list[Part]:
    """The parts that lie on this node, oldest first."""
    named = (Part.named(path.name) for path in (checkpoints / _PARTS).glob("*"))
    return sorted((part for part in named if part), key=lambda part: (part.attempt, part.step))


def remove_parts(checkpoints: Path, kept: Collection[int]) -> None:
    """Remove this node's parts of checkpoints that node 0 does not have; `kept` are the steps of
    those that it has. What may be on its way stays."""
    parts = handed_over(checkpoints)
    newest = {part.step: part for part in parts}
    for part in parts[:-_ON_THEIR_WAY]:
        if part.step not in kept or newest[part.step] != part:
            shutil.rmtree(part_folder(checkpoints, part), ignore_errors=True)


def find_own_file(checkpoints: Path, step: int, entry: FileEntry) -> Path | None:
    """The file of this node's parts that has exactly the bytes of a checkpoint's file."""
    for part in reversed(handed_over(checkpoints)):
        folder = part_folder(checkpoints, part)
        if part.step == step and file_problem(folder, entry) is None:
            return folder / entry.path
    return None


@dataclass(frozen=True, slots=True)
class Awaited:
    """The parts of an attempt's checkpoint that node 0 awaits of these machines."""

    checkpoints: Path
    attempt: int
    step: int
    machines: tuple[int, ...]

    def ask(self) -> None:
        """Have the parts taken from now on, and no others."""
        forget_parts(self.checkpoints)
        self._folder.mkdir(parents=True)

    def gather(self, into: Path, stalled_s: float = STALLED_S) -> None:
        """Wait until all parts are here, and move their files into a folder that has the rest.

        A file that is there already stays.

        Raises:
            OSError: no byte has come for `stalled_s`, or a file can't be moved.
        """
        most_bytes, since_s = -1, time.monotonic()
        while missing := self._missing():
            # Of a part that fails again and again, as on a full disk, no more comes than before.
            if (present_bytes := _size_bytes(self._folder)) > most_bytes:
                most_bytes, since_s = present_bytes, time.monotonic()
            elif time.monotonic() - since_s > stalled_s:
                numbers = ", ".join(map(str, missing))
                free = size_text(shutil.disk_usage(self.checkpoints).free)
                raise OSError(
                    f"the part of host {numbers} has not come: nothing within "
                    f"{spoken_duration(stalled_s)}; "
                    f"the disk here has {free} free"
                )
            time.sleep(_POLL_S)
        for part in self._parts:
            _move_missing(arrived(self.checkpoints, part), into)

    def forget(self) -> None:
        """Take no part any more, and remove those that came."""
        forget_parts(self.checkpoints)

    @property
    def _parts(self) -> list[Part]:
        return [Part(self.attempt, self.step, machine) for machine in self.machines]

    def _missing(self) -> list[int]:
        return [
            part.machine for part in self._parts if not arrived(self.checkpoints, part).is_dir()
        ]

    @property
    def _folder(self) -> Path:
        return _gathering(self.checkpoints, self.attempt, self.step)


def forget_parts(checkpoints: Path) -> None:
    """Remove what came of parts that nobody awaits any more."""
    shutil.rmtree(checkpoints / _GATHERING, ignore_errors=True)


def is_awaited(checkpoints: Path, part: Part) -> bool:
    return _gathering(checkpoints, part.attempt, part.step).is_dir()


def arrived(checkpoints: Path, part: Part) -> Path:
    """Where a part is once all of it has come; its files are moved on from there."""
    return _gathering(checkpoints, part.attempt, part.step) / str(part.machine)


def arriving(checkpoints: Path, part: Part) -> Path:
    """Where a part is until all of it has come."""
    return _gathering(checkpoints, part.attempt, part.step) / f"{_INCOMPLETE}{part.machine}"


def _gathering(checkpoints: Path, attempt: int, step: int) -> Path:
    return checkpoints / _GATHERING / f"{attempt}-{step:08d}"


def _size_bytes(folder: Path) -> int:
    total = 0
    for path in folder.rglob("*"):
        try:
            total += path.stat().st_size
        except OSError:
            continue  # moved meanwhile
    return total


def _move_missing(source: Path, into: Path) -> None:
    for path in sorted(source.rglob("*")):
        target = into / path.relative_to(source)
        if path.is_dir():
            target.mkdir(exist_ok=True)
        elif not target.exists():
            os.rename(path, target)
