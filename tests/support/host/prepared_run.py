"""Hosts for the tests of environments, on which preparations run."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from trainer_runtime.core.files.corpus import Source, fingerprint, list_files

REPOSITORY = Path(__file__).parents[3]


@dataclass
class Box:
    """A run's folder on a separate host, and the preparation in it."""

    folder: Path
    cache: Path
    variables: dict[str, str] = field(default_factory=dict)

    def config(self, **environment: Any) -> None:
        given = {"mode": "auto", "python": None, "modules": [], "bound": {}, **environment}
        source = Source("main", str(self.corpus), list_files(self.corpus))
        data = {
            "sources": [{"name": "main", "path": str(self.corpus), "format": "text"}],
            "tokenizer": "byte",
            "seq_len": 16,
            "fingerprint": fingerprint([source], "byte", 16),
            "cache_dir": str(self.cache),
        }
        config = {
            "run_id": "small-abc234",
            "attempt": {"number": 1},
            "data": data,
            "compute": {"device": "cpu"},
            "env": {"OMP_NUM_THREADS": "1"},
            "environment": given,
        }
        self.attempt.mkdir(parents=True, exist_ok=True)
        (self.attempt / "config.json").write_text(json.dumps(config))

    @property
    def corpus(self) -> Path:
        return self.folder.parent / "corpus"

    @property
    def attempt(self) -> Path:
        return self.folder / "attempts" / "1"

    @property
    def log(self) -> str:
        return (self.attempt / "setup.log").read_text()

    @property
    def settled(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((self.attempt / "environment.json").read_text())
        return found

    def start(self) -> subprocess.Popen[bytes]:
        with (self.attempt / "setup.log").open("ab") as log:
            return subprocess.Popen(
                [sys.executable, "-m", "trainer_runtime", "prepare", "attempts/1/config.json"],
                cwd=self.folder,
                env={**os.environ, **self.variables},
                stdout=log,
                stderr=log,
            )

    def prepare(self, **environment: Any) -> int:
        """The exit code of a preparation with this `environment` in the config."""
        self.config(**environment)
        return self.start().wait(timeout=600)


def make_box(folder: Path, cache: Path) -> Box:
    folder.mkdir(parents=True)
    (folder / "trainer_runtime").symlink_to(REPOSITORY / "trainer_runtime")
    (folder / "requirements.txt").write_text("torch==2.13.0\n")
    made = Box(folder, cache, {"HOME": str(folder)})
    made.corpus.mkdir(exist_ok=True)
    (made.corpus / "a.txt").write_text("A line of text to learn from.\n" * 20)
    return made


def output_of(python: str, code: str) -> str:
    done = subprocess.run([python, "-c", code], capture_output=True, text=True, check=True)
    return done.stdout.strip()
