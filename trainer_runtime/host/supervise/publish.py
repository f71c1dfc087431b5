"""Writes the supervisor's published files: state, index, status page, link and window."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence

from trainer_runtime.core.checkpoints.checkpoint_index import build_index
from trainer_runtime.core.config import RunConfig
from trainer_runtime.core.files.durable import write_atomic
from trainer_runtime.core.protocol.journal import Record
from trainer_runtime.core.protocol.progress import Progress
from trainer_runtime.core.status.status_page import render_status
from trainer_runtime.host.files.files import write_json
from trainer_runtime.host.files.layout import RunFolder
from trainer_runtime.host.supervise.tmux_view import close_window, open_window

_LEAST_INTERVAL_S = 1.0


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
