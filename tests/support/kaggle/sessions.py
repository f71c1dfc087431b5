"""Kernels and data sets as our stand-in for Kaggle keeps them; pushed scripts are really run."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

OVER = ("COMPLETE", "ERROR", "CANCEL_ACKNOWLEDGED")
_MARKER = "KAGGLE_SESSION_OF_A_TEST"


@dataclass
class Dataset:
    """`versions`: the folder of each; `polls`: how often it still says that it is not ready."""

    ref: str
    title: str
    private: bool
    versions: list[Path] = field(default_factory=list)
    polls: int = 0


class Session:
    """One life of a pushed version, in a thread of its own and a process that it starts.

    `mounts`: folders by their places in the input folder. `gate` is waited for
    before it starts; `pause` of a stream of the log ends when `changed` is set.
    """

    def __init__(
        self,
        folder: Path,
        pushed: dict[str, Any],
        *,
        mounts: dict[str, Path],
        gate: threading.Event,
        before: Session | None,
    ) -> None:
        self.folder, self.pushed, self.mounts = folder, pushed, mounts
        self.working, self.input = folder / "working", folder / "input"
        self.state = "QUEUED"
        self.message: str | None = None
        self.events: list[dict[str, Any]] = []
        self.changed = threading.Condition()
        self.used_s = 0.0
        self.cuts = 0
        self._gate, self._before = gate, before
        self._closing = threading.Event()
        self._process: subprocess.Popen[str] | None = None
        self._thread = threading.Thread(target=self._live, daemon=True)
        self._thread.start()

    @property
    def is_over(self) -> bool:
        return self.state in OVER

    @property
    def output(self) -> Path | None:
        return self.working if self.state == "COMPLETE" else None

    def join(self, timeout_s: float = 120.0) -> None:
        """Wait until it is over."""
        self._thread.join(timeout_s)
        assert not self._thread.is_alive(), "the session did not end"

    def interrupt(self) -> None:
        """Signal its script that its time is over."""
        assert self._process is not None
        self._process.send_signal(signal.SIGTERM)

    def close(self) -> None:
        """End it and whatever it started."""
        self._closing.set()
        self._gate.set()
        deadline = time.monotonic() + 120.0
        while self._thread.is_alive() and time.monotonic() < deadline:
            end_carriers(str(self.folder))  # it may just be starting one
            self._thread.join(0.1)
        end_carriers(str(self.folder))

    def _live(self) -> None:
        if self._before is not None:
            self._before._thread.join()
        self._gate.wait()
        if self._closing.is_set():
            return self._become("CANCEL_ACKNOWLEDGED")
        self.working.mkdir(parents=True)
        self.input.mkdir()
        for name, place in self.mounts.items():
            (self.input / name).parent.mkdir(parents=True, exist_ok=True)
            (self.input / name).symlink_to(place)
        before = {name: _listing(place) for name, place in self.mounts.items()}
        self._become("RUNNING")
        begun = time.monotonic()
        code = self._run(begun)
        self.used_s = time.monotonic() - begun
        end_carriers(str(self.folder))  # its machine goes
        for name, place in self.mounts.items():
            if _listing(place) != before[name]:
                self.message = f"the mount {name} was written to"
                code = 1
        if code != 0:
            shutil.rmtree(self.working, ignore_errors=True)
        return self._become("COMPLETE" if code == 0 else "ERROR")

    def _run(self, begun: float) -> int:
        script = self.folder / "script.py"
        script.write_text(self.pushed["text"])
        process = self._process = subprocess.Popen(
            [sys.executable, str(script)],
            cwd=self.working,
            env=self._environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        pumps = [
            threading.Thread(target=self._pump, args=(stream, name, begun), daemon=True)
            for stream, name in ((process.stdout, "stdout"), (process.stderr, "stderr"))
        ]
        for pump in pumps:
            pump.start()
        try:
            code = process.wait(self.pushed.get("sessionTimeoutSeconds"))
        except subprocess.TimeoutExpired:
            self.message = "Your notebook exceeded its allowed time."
            code = -1
        if code != 0 or self._closing.is_set():
            end_carriers(str(self.folder))
        with suppress(ProcessLookupError):
            process.kill()
        process.wait()
        for pump in pumps:
            pump.join(10)
        return code

    def _environment(self) -> dict[str, str]:
        kept = {name: os.environ[name] for name in ("PATH", "LANG") if name in os.environ}
        return {
            **kept,
            "HOME": str(self.folder),
            "PYTHONUNBUFFERED": "1",
            "KAGGLE_KERNEL_RUN_TYPE": "Batch",
            "KAGGLE_WORKING_DIR": str(self.working),
            "KAGGLE_INPUT_DIR": str(self.input),
            _MARKER: str(self.folder),
        }

    def _pump(self, stream: Any, name: str, begun: float) -> None:
        for line in stream:
            event = {"stream_name": name, "time": time.monotonic() - begun, "data": line}
            with self.changed:
                self.events.append(event)
                self.changed.notify_all()

    def _become(self, state: str) -> None:
        with self.changed:
            self.state = state
            self.changed.notify_all()


@dataclass
class Kernel:
    """`slug` with its owner; `versions`: what was pushed, each with its session."""

    slug: str
    title: str
    versions: list[Session] = field(default_factory=list)
    source: str = ""

    @property
    def newest(self) -> Session:
        return self.versions[-1]

    @property
    def output(self) -> Path | None:
        """What the last session that ended well has left."""
        return next((s.output for s in reversed(self.versions) if s.output is not None), None)


def end_carriers(marker: str) -> None:
    """Kill every process that a session has started, wherever it went."""
    wanted = f"{_MARKER}={marker}".encode()
    deadline = time.monotonic() + 120.0
    while time.monotonic() < deadline:
        found = [pid for pid in _pids() if wanted in _environ(pid).split(b"\0")]
        if not found:
            return
        for pid in found:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.01)


def until(condition: Callable[[], bool], changed: threading.Condition, bound_s: float) -> bool:
    """Wait for a condition; `changed` is set by anything that may make it true."""
    with changed:
        return changed.wait_for(condition, bound_s)


def _pids() -> list[int]:
    return [
        int(name) for name in os.listdir("/proc") if name.isdigit() and int(name) != os.getpid()
    ]


def _environ(pid: int) -> bytes:
    try:
        if b"Z" in Path(f"/proc/{pid}/stat").read_bytes().rsplit(b")", 1)[-1][:3]:
            return b""
        return Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return b""


def _listing(folder: Path) -> list[tuple[str, int, int]]:
    return sorted(
        (str(file.relative_to(folder)), status.st_size, status.st_mtime_ns)
        for file in folder.rglob("*")
        if file.is_file()
        for status in [file.stat()]
    )
