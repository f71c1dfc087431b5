"""A run's folder as `attach` makes it, and its log followed without a supervisor."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from trainer_runtime.core.protocol.lines import decode
from trainer_runtime.host.attach.attached_processes import AttachedProcesses
from trainer_runtime.host.files.layout import RunFolder
from trainer_runtime.host.processes.processes import Observation

_GIB = 1 << 30


class AttachedFolder:
    """One attempt under a host's root. `follow` makes one of the supervisor's rounds."""

    def __init__(self, root: Path, log: Path, name: str = "watched-abc234") -> None:
        self.run = RunFolder(root / "runs" / name)
        self.attempt = self.run.attempt(1)
        self.attempt.root.mkdir(parents=True)
        source = {"path": str(log), "from": "start", "begin": 0, "ends_after_s": 1e6}
        config = {"run_id": name, "framework": "attached", "attached": source}
        self.run.config.write_text(json.dumps(config))
        self.now = 1.7e9
        self.restart()
        self._processes.start(1)

    def restart(self) -> None:
        """As another supervisor does, that knows only the files."""
        self._processes = AttachedProcesses(self.run.root, lambda: self.now)

    def follow(self, rounds: int = 1) -> Observation:
        for _ in range(rounds):
            self.now += 60.0
            observation = self._processes.observe(1)
        return observation

    @property
    def copy(self) -> bytes:
        return self.attempt.train_log.read_bytes()

    def decisions(self) -> list[dict[str, Any]]:
        lines = self.attempt.events.read_bytes().splitlines()
        return [dict(one.document) for one in map(decode, lines) if one.kind == "decision"]

    def close(self) -> None:
        self._processes.terminate(1)


def limit(folder: Path, **bounds: int) -> None:
    """Set the bounds `source`, `run`, `root` and `margin`, in bytes, of the host at `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    gib = {f"{name}_gib": value / _GIB for name, value in bounds.items()}
    (folder / "limits.json").write_text(json.dumps(gib))
