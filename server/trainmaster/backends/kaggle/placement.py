"""A run's placement at Kaggle: the bundle for its sessions, and its journal."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trainer_runtime.core.decoding import decode_fields
from trainer_runtime.core.files.durable import write_atomic
from trainer_runtime.core.protocol.desired import Desired
from trainer_runtime.core.protocol.followed_files import JOURNAL
from trainer_runtime.core.protocol.journal import Record, TransitionError
from trainer_runtime.core.protocol.lines import ProtocolError, complete_lines, decode
from trainmaster.errors.errors import HostError
from trainmaster.store.mirror import PlacementMirror

_DESIRED = "desired.json"
_REFUSED = "upload_refused.json"


@dataclass(frozen=True, slots=True)
class KagglePlacement:
    """`folder` in the home holds the run's bundle in `run/`, as it was at the launch."""

    run_id: str
    folder: Path

    @property
    def bundle(self) -> Path:
        return self.folder / "run"

    @property
    def output(self) -> Path:
        """The folder of fetched output files."""
        return self.folder / "output"

    def place(self, files: Mapping[str, bytes]) -> None:
        """Write the bundle atomically."""
        if self.bundle.is_dir():
            return
        arriving = self.folder / f".run.{os.getpid()}"
        shutil.rmtree(arriving, ignore_errors=True)
        for name, data in files.items():
            path = arriving / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
        os.rename(arriving, self.bundle)

    def request(self, desired: Desired) -> None:
        write_atomic(self.bundle / _DESIRED, json.dumps(desired.to_dict()).encode())

    @property
    def desired(self) -> Desired:
        """Raises:
        HostError: `UNSUPPORTED`, the bundle was removed.
        """
        try:
            return Desired.of(decode_fields((self.bundle / _DESIRED).read_bytes(), _DESIRED))
        except FileNotFoundError:
            raise HostError(
                "UNSUPPORTED",
                f"The bundle of {self.run_id} is no longer in this home.",
                "Launch it again.",
            ) from None

    def refuse(self, message: str) -> None:
        """Record why the uploads for the newest request failed."""
        refused = {"generation": self.desired.generation, "message": message}
        write_atomic(self.folder / _REFUSED, json.dumps(refused).encode())

    @property
    def refusal(self) -> str | None:
        """Why the newest request can't be met, if it can't."""
        try:
            refused = json.loads((self.folder / _REFUSED).read_bytes())
        except FileNotFoundError:
            return None
        return str(refused["message"]) if refused["generation"] == self.desired.generation else None

    @property
    def config(self) -> dict[str, Any]:
        config: dict[str, Any] = json.loads((self.bundle / "config.json").read_bytes())
        return config

    @property
    def wants_gpu(self) -> bool:
        return bool(self.config["compute"]["device"] == "cuda")

    def files(self) -> dict[str, bytes]:
        """The files of each session besides the request."""
        return {
            path.relative_to(self.bundle).as_posix(): path.read_bytes()
            for path in sorted(self.bundle.rglob("*"))
            if path.is_file() and path.name != _DESIRED
        }

    def remove(self) -> int:
        """Remove it from the home; returns the bytes freed."""
        freed = sum(path.stat().st_size for path in self.folder.rglob("*") if path.is_file())
        shutil.rmtree(self.folder, ignore_errors=True)
        return freed


def record_of(mirror: PlacementMirror) -> Record:
    """The record from the mirrored journal."""
    record = Record()
    lines, _ = complete_lines(mirror.read(JOURNAL, 0, mirror.size(JOURNAL)))
    for line in lines:
        try:
            record.apply(decode(line))
        except (ProtocolError, TransitionError):
            continue  # a line torn by a kill
    return record
