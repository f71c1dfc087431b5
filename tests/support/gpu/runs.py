"""Runs on this machine by the host's own programs: supervisor, preparation, hold and trainer.

The client is not needed: train.py is the committed script of its kind, config.json is made here.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from support.gpu.part import Setting
from support.host.run_configs import Config, Events, bytes_of, changed, model_of, pretraining

from trainer_runtime.core.config import RunConfig
from trainer_runtime.core.frameworks import launching
from trainer_runtime.core.protocol.desired import Desired
from trainer_runtime.core.protocol.states import DesiredState

REPOSITORY = Path(__file__).parents[3]
SCRIPTS = REPOSITORY / "tests" / "golden" / "scripts"


SMALL = {"n_layer": 6, "n_head": 6, "d_model": 384}


def base_config(
    setting: Setting, framework: str, *, seq_len: int | None = None, **changes: Any
) -> Config:
    """A small training of the runtime's own sources as bytes; `changes` replace whole sections,
    or with `section__field` one value."""
    seq_len = seq_len or (32 if setting.tiny else 256)
    size = {"n_layer": 2, "n_head": 2, "d_model": 32} if setting.tiny else SMALL
    corpus = {"main": REPOSITORY / "trainer_runtime" / "core"}
    batch = {"micro_batch": 4 if setting.tiny else 16, "accumulation": 1}
    config = pretraining(
        framework,
        model_of(size, vocab_size=320),
        bytes_of(corpus, seq_len, setting.folder / "cache"),
        batch,
        device=setting.device,
    )
    config["compute"] |= {
        "threads": 1 if setting.device == "cpu" else 8,
        "processes": 1,
        "strategy": "single",
        "activation_checkpointing": False,
        "deterministic": framework == "nanogpt",  # as planned
    }
    config["checkpoint"]["keep_latest"] = 2
    config |= {
        "name": "gpu",
        "method_args": {},
        "adapter": None,
        "recovery": {"max_restarts": 3, "on_crash": "resume", "on_oom": "patch"},
        "tracking": {},
    }
    return changed(config, changes)


class Run:
    """One run's folder below a part's, and the processes that train in it."""

    def __init__(self, setting: Setting, name: str, script: str, config: Config) -> None:
        self.name, self.config = name, {**config, "run_id": f"{name}-abc234"}
        self.folder = setting.folder / "runs" / str(self.config["run_id"])
        self.folder.mkdir(parents=True)
        shutil.copy(SCRIPTS / f"{script}.py", self.folder / "train.py")
        (self.folder / "trainer_runtime").symlink_to(REPOSITORY / "trainer_runtime")
        texts = launching.files(RunConfig.parse(self.config))
        texts["config.json"] = json.dumps(self.config, indent=1)
        desired = Desired(DesiredState.RUNNING, generation=1)
        texts["desired.json"] = json.dumps(desired.to_dict())
        for file, text in texts.items():
            (self.folder / file).parent.mkdir(parents=True, exist_ok=True)
            (self.folder / file).write_text(text)

    def start(self) -> Run:
        """Start the supervisor, which starts the rest. Raises: RuntimeError, it does not start."""
        done = subprocess.run(
            [sys.executable, "-m", "trainer_runtime", "start", "."],
            cwd=self.folder,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        if done.returncode != 0:
            raise RuntimeError(f"the supervisor of {self.name} did not start: {done.stdout}")
        return self

    def journal(self) -> Events:
        """What the supervisor has recorded so far."""
        return _lines(self.folder / "supervisor.jsonl")

    def events(self, attempt: int | None = None) -> Events:
        """What the trainer of an attempt has recorded, of all attempts in turn without one."""
        number = "*" if attempt is None else str(attempt)
        paths = sorted(self.folder.glob(f"attempts/{number}/events.jsonl"))
        return [event for path in paths for event in _lines(path)]

    def values(self, *keys: str) -> dict[int, tuple[Any, ...]]:
        """The newest values of every step that has a loss."""
        return {
            event["step"]: tuple(event["values"].get(key) for key in keys)
            for event in self.events()
            if event["kind"] == "metric" and "loss" in event["values"]
        }

    @property
    def attempts(self) -> int:
        return len(list(self.folder.glob("attempts/*")))

    @property
    def state(self) -> str:
        """The newest state in the journal."""
        return str(next((e["state"] for e in reversed(self.journal()) if e["kind"] == "state"), ""))

    def wait(self, met: Callable[[], Any], what: str, bound_s: float = 240.0) -> Any:
        """What `met` gives once that is true.

        Raises:
            RuntimeError: the run ended otherwise, or it took longer than `bound_s`.
        """
        deadline = time.monotonic() + bound_s
        while not (found := met()):
            if self.state in ("failed", "stopped", "needs_operator") and not met():
                raise RuntimeError(f"{self.name} is {self.state}: {self.last_words()}")
            if time.monotonic() > deadline:
                raise RuntimeError(f"{self.name}: {what} took more than {bound_s:.0f} s")
            time.sleep(0.05)
        return found

    def completed(self, bound_s: float = 240.0) -> Run:
        """Itself, once it has completed. Raises: RuntimeError, as `wait`."""
        self.wait(lambda: self.state == "completed", "its end", bound_s)
        return self

    def last_words(self) -> str:
        """The last lines of the newest log that says something."""
        for log in ("train.log", "setup.log"):
            for path in sorted(self.folder.glob(f"attempts/*/{log}"), reverse=True):
                lines = path.read_text(errors="replace").strip().splitlines()
                if lines:
                    return " | ".join(lines[-3:])[-500:]
        return "nothing in its logs"

    def kill_trainer(self) -> None:
        """Kill the newest attempt's trainer by SIGKILL."""
        path = self.folder / "attempts" / str(self.attempts) / "process.json"
        with suppress(ProcessLookupError):
            os.kill(json.loads(path.read_text())["trainer"]["pid"], signal.SIGKILL)

    def end(self) -> None:
        """End all its processes, the supervisor first."""
        end_processes_in(self.folder)


def end_processes_in(folder: Path) -> None:
    """Kill the processes whose working folder lies in `folder`, in the order of their start, so
    that a supervisor does not replace what is killed after it."""
    for _ in range(3):
        found = sorted(pid for pid in _pids() if _is_in(pid, folder))
        for pid in found:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        if not found:
            return
        time.sleep(0.05)


def _pids() -> list[int]:
    own = os.getpid()
    return [int(name) for name in os.listdir("/proc") if name.isdigit() and int(name) != own]


def _is_in(pid: int, folder: Path) -> bool:
    try:
        return Path(os.readlink(f"/proc/{pid}/cwd")).is_relative_to(folder.resolve())
    except OSError:
        return False


def _lines(path: Path) -> Events:
    """The whole lines of a file that is being appended to."""
    try:
        text = path.read_text()
    except OSError:
        return []
    found = []
    for line in text.splitlines():
        with suppress(ValueError):
            found.append(json.loads(line))
    return found
