"""What the tests of kernels share: sessions of a pushed script, and what their logs carry."""

from __future__ import annotations

import base64
import os
import shutil
import signal
import subprocess
import sys
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from support.host.tiny_training import RUN_ID
from support.runs.running_run import LONGEST_S, wait_until

from trainer_runtime.core.kaggle.log_frames import decode_frame
from trainer_runtime.core.kaggle.session_order import CarriedJournal, KernelOrder
from trainer_runtime.core.protocol.desired import Desired
from trainer_runtime.core.protocol.journal import Record
from trainer_runtime.core.protocol.lines import complete_lines, decode
from trainer_runtime.core.protocol.states import DesiredState
from trainer_runtime.host.files.layout import RunFolder
from trainer_runtime.host.processes.hold import marker
from trainer_runtime.host.processes.identity import carriers, send
from trainmaster.home.assets import find_assets
from trainmaster.plan.kaggle_script import kernel_script
from trainmaster.plan.render import render_attached

RUN_SLUG = f"tm-{RUN_ID}"


@dataclass
class Copy:
    """The client's copy from a kernel's log: the run's files, by their names."""

    files: dict[str, bytes] = field(default_factory=dict)

    def take(self, log: str, only: str | None = None) -> Copy:
        """Read a log from its beginning, however often that was done before."""
        for line in log.splitlines():
            frame = decode_frame(line)
            if frame is None or only not in (None, frame.file):
                continue
            have = self.files.get(frame.file, b"")
            if frame.whole:
                self.files[frame.file] = frame.data
                continue
            assert frame.at <= len(have), f"{frame.file} lacks what is before {frame.at}"
            self.files[frame.file] = have + frame.data[len(have) - frame.at :]
        return self

    @property
    def journal(self) -> bytes:
        return self.files.get("supervisor.jsonl", b"")

    @property
    def record(self) -> Record:
        found = Record()
        for line in complete_lines(self.journal)[0]:
            found.apply(decode(line))
        return found


class Session:
    """One session: the folders that Kaggle gives it, and the process of the pushed script."""

    def __init__(self, root: Path, script: str) -> None:
        self.working, self.inputs = root / "working", root / "input"
        self.working.mkdir(parents=True)
        self.inputs.mkdir()
        self._temporary = root / "tmp"
        self._temporary.mkdir()
        self._script = root / "script.py"
        self._script.write_text(script)
        self._log, self._errors = root / "log", root / "errors"
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def run(self) -> RunFolder:
        return RunFolder(self.working / "run")

    @property
    def log(self) -> str:
        return self._log.read_text()

    @property
    def words(self) -> list[str]:
        """What the log says to people."""
        return [line for line in self.log.splitlines() if decode_frame(line) is None]

    def mount(self, folder: Path, place: str) -> None:
        """Have a folder among the inputs, as an earlier kernel's output or a data set."""
        shutil.copytree(folder, self.inputs / place, symlinks=True)

    def start(self, **variables: str) -> Session:
        with self._log.open("wb") as log, self._errors.open("wb") as errors:
            self._process = subprocess.Popen(
                [sys.executable, str(self._script)],
                cwd=self.working,
                env={
                    **os.environ,
                    "KAGGLE_WORKING_DIR": str(self.working),
                    "KAGGLE_INPUT_DIR": str(self.inputs),
                    "TMPDIR": str(self._temporary),
                    "TMUX_TMPDIR": str(self._temporary),
                    **variables,
                },
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=errors,
            )
        return self

    def interrupt(self) -> None:
        """Have the session end early, as Kaggle's own signal would."""
        assert self._process is not None
        self._process.send_signal(signal.SIGTERM)

    def end(self, bound_s: float = LONGEST_S) -> int:
        """Its exit code, once it has ended by itself."""
        assert self._process is not None
        code = self._process.wait(bound_s)
        assert self._errors.read_text() == ""
        return code

    def lose(self) -> None:
        """Everything is gone at once, as with the machine; may be repeated."""
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
            self._process.wait()
        for folder in self.working.glob("run/attempts/*"):
            for process in carriers(marker(self.run.run_id, int(folder.name))):
                send(process, signal.SIGKILL)

    def wait_for_step(self, attempt: int, step: int) -> None:
        """Wait until the log reports this step of an attempt."""
        name, wanted = f"attempts/{attempt}/events.jsonl", f'"metric","step":{step},'.encode()
        there = self.run.root / name
        self.wait_for(lambda: there.exists() and wanted in there.read_bytes())
        self.wait_for(lambda: wanted in Copy().take(self.log, name).files.get(name, b""))

    def wait_for(self, met: Callable[[], object]) -> None:
        """Until this is so; fails where the session ends before."""
        wait_until(lambda: met() or self._is_over(), "what a session waits for", LONGEST_S)
        assert met(), self.log[-2000:] + self._errors.read_text()[-2000:]

    def _is_over(self) -> bool:
        return self._process is not None and self._process.poll() is not None


@dataclass
class Kernel:
    """A run's sessions, each pushed into a folder of its own."""

    root: Path
    config: Mapping[str, Any]
    train: str
    sessions: list[Session] = field(default_factory=list)

    def push(self, **order: Any) -> Session:
        """The next session, not yet started; `order` changes what it is to do."""
        files = {
            **render_attached(self.config, find_assets()).files,
            "train.py": self.train.encode(),
        }
        number = len(self.sessions) + 1
        wanted: dict[str, Any] = {"number": number, "limit_s": 600.0, "margin_s": 60.0, **order}
        made = KernelOrder(run_id=self.config["run_id"], **wanted)
        asked = Desired(DesiredState.RUNNING, 1)
        script = kernel_script(made, files, asked, find_assets())
        self.sessions.append(Session(self.root / str(number), script))
        return self.sessions[-1]

    def close(self) -> None:
        for session in self.sessions:
            session.lose()


def carried(journal: bytes, at: int = 0) -> CarriedJournal:
    """What an order carries of a journal, from a byte on."""
    return CarriedJournal(at, base64.b64encode(zlib.compress(journal[at:])).decode())


# A simulated trainer: it reports its steps and checkpoints, and does what its config says after
# each. On SIGTERM it saves and ends.
TRAINER = """\
import json, os, signal, sys, time
from pathlib import Path

from trainer_runtime.core.protocol.lines import encode

end_signals = []
signal.signal(signal.SIGTERM, lambda number, frame: end_signals.append(number))
path = Path(sys.argv[1])
config = json.loads(path.read_bytes())
attempt = config["attempt"]["number"]
first = max(config["attempt"]["resume"]["candidates"], default=0)
events = (path.parent / "events.jsonl").open("ab", buffering=0)
said = 0

def emit(kind, **fields):
    global said
    events.write(encode(said, time.time(), kind, fields))
    said += 1

def save(step):
    place = f"checkpoints/step-{step:08d}"
    os.makedirs(place)
    Path(place, "manifest.json").write_text(json.dumps({"step": step, "attempt": attempt}))
    emit("checkpoint", action="saved", step=step, path=place, size_bytes=9)
    emit("checkpoint", action="verified", step=step)

emit("started", step=first, target_step=config["steps"], resumed_from=first or None)
for step in range(first + 1, config["steps"] + 1):
    emit("metric", step=step, values={"loss": 1.0 / step})
    if step % 10 == 0:
        save(step)
    exec(config["does"])
    if end_signals:
        save(step)
        sys.exit(75)
emit("completed", step=config["steps"])
"""
