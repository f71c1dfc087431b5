"""Writes the supervisor's published files: state, index, status page, link and window."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

from trainer_runtime.core.checkpoints.checkpoint_index import build_index
from trainer_runtime.core.config import RunConfig
from trainer_runtime.core.files.durable import write_atomic
from trainer_runtime.core.protocol.journal import Record
from trainer_runtime.core.protocol.progress import Progress
from trainer_runtime.core.status.status_page import render_status
from trainer_runtime.host.files.files import write_json
from trainer_runtime.host.files.layout import RunFolder

_LEAST_INTERVAL_S = 1.0
_TIMEOUT_S = 5.0


class Publisher:
    """Rewrites the three files where something changed, at most once a second."""

    def __init__(self, run: RunFolder, clock: Callable[[], float], *, window: bool) -> None:
        self._run = run
        self._clock = clock
        self._wants_window = window
        self._due_t = 0.0
        self._published: tuple[int, ...] = ()
        self._window: str | None = None

    def show(self, attempt: int) -> None:
        """Point `logs/train.log` at the attempt's log, and open the window on it."""
        link = self._run.current_log
        link.parent.mkdir(exist_ok=True)
        temporary = link.with_name(f".{link.name}.{os.getpid()}")
        temporary.unlink(missing_ok=True)
        temporary.symlink_to(os.path.join("..", "attempts", str(attempt), "train.log"))
        os.replace(temporary, link)
        if self._wants_window and self._window is None:
            self._window = open_window(self._run.run_id, link)

    def publish(
        self,
        record: Record,
        attempts: Sequence[Progress],
        config: RunConfig,
        *,
        final: bool = False,
    ) -> None:
        """Write what is due; `final` writes at once and closes the window."""
        now = self._clock()
        version = (record.last_seq, *(progress.last_seq for progress in attempts))
        if version != self._published and (final or now >= self._due_t):
            self._write(record, attempts, config, now)
            self._published, self._due_t = version, now + _LEAST_INTERVAL_S
        if final and self._wants_window:
            close_window(self._run.run_id)

    def close(self) -> None:
        self._published = ()

    def _write(
        self, record: Record, attempts: Sequence[Progress], config: RunConfig, now: float
    ) -> None:
        index = build_index(attempts, config.checkpoint.metric)
        write_json(self._run.checkpoint_index, index.to_dict())
        page = render_status(record, attempts, index, config, now)
        write_atomic(self._run.status_page, page.encode())
        state = {
            "v": 1,
            "run_id": self._run.run_id,
            "t": now,
            "window": self._window,
            **{name: value for name, value in record.to_dict().items() if name != "closed"},
        }
        write_json(self._run.state, state)


def open_window(run_id: str, log: Path) -> str | None:
    """Show `log` in a session named `tm-<run>`; the command that attaches to it, None if none can.

    In tmux's names a dot stands between window and pane, so that a run's dots become `_`.
    The log's link moves to the next attempt's file, hence `-F` with an early check of the name.
    """
    session = _session(run_id)
    follow = ["tail", "-n", "200", "-F", "--max-unchanged-stats=1", str(log)]
    if shutil.which("tmux"):
        if _succeeds(["tmux", "has-session", "-t", f"={session}"]):
            return f"tmux attach -t {session}"
        if _succeeds(["tmux", "new-session", "-d", "-s", session, shlex.join(follow)]):
            return f"tmux attach -t {session}"
    if shutil.which("screen") and _succeeds(["screen", "-dmS", session, *follow]):
        return f"screen -r {session}"
    return None


def close_window(run_id: str) -> None:
    """End the session, whichever of the two holds it; nothing happens where there is none."""
    session = _session(run_id)
    if shutil.which("tmux"):
        _succeeds(["tmux", "kill-session", "-t", f"={session}"])
    if shutil.which("screen"):
        _succeeds(["screen", "-S", session, "-X", "quit"])


def _session(run_id: str) -> str:
    return f"tm-{run_id}".replace(".", "_")


def _succeeds(command: list[str]) -> bool:
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=_TIMEOUT_S,
            check=False,
            start_new_session=True,
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0
