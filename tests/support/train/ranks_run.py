"""A run of several ranks on this machine's CPU, and its attempts as hold starts them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from support.host.run_configs import Config, changed
from support.host.tiny_training import REPOSITORY, RunFolder, metric_step, prepared_config
from support.runs.running_run import begin_with, wait_until

from trainer_runtime.core.config import RunConfig
from trainer_runtime.core.frameworks import launching
from trainer_runtime.core.processes.rank_exits import RANKS

BOUND_S = 240.0
_CURVE = ("loss", "grad_norm", "lr", "val_loss")
# Trainer imports both wherever they are installed, for a second of each start; no rank needs them.
_WITHOUT_ROWS_AND_ADAPTERS = """\
import sys
sys.modules.update(dict.fromkeys(("datasets", "peft")))
"""


def two_ranks(folder: Path, text: bytes, steps: int, saved_every: int) -> Config:
    """The configuration of a run of two ranks of HF Trainer, with dropout, on a corpus of this text
    that is prepared under `folder`."""
    return changed(
        prepared_config(folder, "hf", text),
        {
            "steps": steps,
            "precision": "fp32",
            "eval__every_steps": steps // 2,
            "checkpoint__every": saved_every,
            "batch__micro_batch": 2,
            "compute__processes": 2,
            "compute__strategy": "ddp",
            "env": {},
        },
    )


class RanksRun(RunFolder):
    """A run's folder, and attempts in it as hold starts them."""

    def __init__(self, folder: Path, config: Config) -> None:
        super().__init__(folder, config)
        path = f"{folder / 'packages'}:{REPOSITORY}"
        self._environment = {**os.environ, "PYTHONPATH": path, "PYTHONUNBUFFERED": "1"}
        self.begin_ranks_with("")

    def begin_ranks_with(self, code: str) -> None:
        """Have every process of an attempt run this before its own code."""
        begin_with(self.folder / "packages", _WITHOUT_ROWS_AND_ADAPTERS + code)

    def write_config(self, name: str, config: Config) -> Path:
        path = super().write_config(name, config)
        if config["compute"]["strategy"] == "fsdp":
            arguments = path.parent / "training_args.yaml"
            text = arguments.read_text().replace("use_cpu: true", "use_cpu: false")
            arguments.write_text(text)
        return path

    def run(self, *command: str) -> int:
        """The exit code of a command in the run's folder; it fails what takes too long."""
        with (self.folder / "log").open("wb") as log:
            return subprocess.run(
                command,
                cwd=self.folder,
                env={**self._environment, "PYTHON": sys.executable},
                stdout=log,
                stderr=log,
                timeout=BOUND_S,
                check=False,
            ).returncode

    def start(self, number: int, **attempt: Any) -> subprocess.Popen[bytes]:
        """An attempt; what it prints is in its train.log."""
        config = self.attempt_config(number=number, **attempt)
        with (self.attempt(number) / "train.log").open("wb") as log:
            return subprocess.Popen(
                launching.command(RunConfig.parse(self.config), sys.executable, config),
                cwd=self.folder,
                env=self._environment,
                stdout=log,
                stderr=log,
            )

    def attempt(self, number: int) -> Path:
        return self.folder / "attempts" / str(number)

    def checkpoint(self, step: int) -> Path:
        return self.folder / f"checkpoints/step-{step:08d}"

    def log(self, number: int) -> str:
        return (self.attempt(number) / "train.log").read_text()

    def reach(self, process: subprocess.Popen[bytes], number: int, step: int) -> None:
        """Waits until an attempt has reported a step."""

        def reported() -> bool:
            assert process.poll() is None, self.log(number)
            return any(metric_step(event) >= step for event in self.events(f"attempts/{number}"))

        wait_until(reported, f"step {step} of attempt {number}", BOUND_S)

    def rank_pid(self, number: int, rank: int) -> int:
        path = self.attempt(number) / RANKS / f"{rank}.json"
        return int(json.loads(path.read_bytes())["pid"])

    def curve(self, *folders: str) -> dict[tuple[str, int], list[float]]:
        """The last values of every step and evaluation, in the order of the attempts."""
        found: dict[tuple[str, int], list[float]] = {}
        for folder in folders:
            for event in self.events(folder):
                values = event.get("values") or {}
                if event["kind"] in ("metric", "eval") and set(values) & set(_CURVE):
                    kept = [values[key] for key in _CURVE if key in values]
                    found[event["kind"], event["step"]] = kept
        return found
