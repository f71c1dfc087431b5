"""The operator's copy of what a placement said, byte for byte: the truth once the box is gone."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from trainer_runtime.core.durable import write_atomic

# Only ever appended to by their writers; copied from where the copy ends.
APPENDED_IN_RUN = ("supervisor.jsonl",)
APPENDED_IN_ATTEMPT = ("events.jsonl", "train.log", "setup.log")
# Replaced as a whole by their writers; copied as a whole.
REPLACED_IN_RUN = ("state.json", "training_status.md", "checkpoints_index.json")
REPLACED_IN_ATTEMPT = ("config.json", "exit.json")


@dataclass(frozen=True, slots=True)
class PlacementMirror:
    """The mirror of one placement; names in it are those of the run's folder on the box."""

    root: Path

    def path(self, name: str) -> Path:
        return self.root / name

    def size(self, name: str) -> int:
        """Bytes mirrored so far: at the same time the cursor into the original."""
        try:
            return self.path(name).stat().st_size
        except FileNotFoundError:
            return 0

    def append(self, name: str, data: bytes) -> None:
        """Add what follows in the original. The caller holds the host's follower lock.

        Raises:
            OSError: the disk did not take all of it; what it took is cut off again.
        """
        path = self.path(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        before = self.size(name)
        try:
            with path.open("ab") as file:
                file.write(data)
        except OSError:
            os.truncate(path, before)
            raise

    def replace(self, name: str, data: bytes) -> None:
        path = self.path(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(path, data)

    def read(self, name: str, offset: int, limit: int) -> bytes:
        """At most `limit` bytes from `offset` on; empty where there is nothing (yet)."""
        try:
            with self.path(name).open("rb") as file:
                file.seek(offset)
                return file.read(limit)
        except FileNotFoundError:
            return b""

    def attempts(self) -> list[int]:
        """The numbers of the attempts that anything is mirrored of."""
        folder = self.root / "attempts"
        names = os.listdir(folder) if folder.is_dir() else []
        return sorted(int(name) for name in names if name.isdigit())


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
