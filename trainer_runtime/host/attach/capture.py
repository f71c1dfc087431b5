"""Captures a pane's text in two files: its content at the start, and its output since."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from trainer_runtime.core.config import PaneConfig
from trainer_runtime.core.files.durable import write_atomic
from trainer_runtime.host.attach.terminals import (
    Pane,
    begin_capture,
    end_capture,
    foreground,
    screen_windows,
    tmux_panes,
    whole_history,
    width_of,
)
from trainer_runtime.host.processes.identity import ProcessIdentity

_MOST_OF_A_PANE = 64 << 20


class Capture:
    """The capture of one pane, begun once even if the process that begins it is killed."""

    def __init__(self, folder: Path, pane: PaneConfig, *, with_history: bool) -> None:
        self._wanted = pane
        self._with_history = with_history
        self._raw = folder / "history.raw"
        self.history = folder / "history.log"
        self.spool = folder / "source.log"

    def begin(self) -> str | None:
        """Make sure that the pane is captured; None once it is, else what keeps it from being so.

        Raises:
            OSError: the history can't be written.
        """
        if self.history.exists():
            return None
        pane = find_pane(self._wanted)
        if self._is_being_begun():
            return "its history is being read"
        if not self.spool.exists():
            if pane is None:
                return "it is gone"
            if pane.piped:
                return "somebody else has its output written elsewhere by now"
            problem = begin_capture(pane, self._raw, self.spool, with_history=self._with_history)
            if problem is not None:
                return problem
        width = width_of(pane) if pane is not None else None
        write_atomic(self.history, whole_history(self._wanted.program, width, self._read_raw()))
        self._raw.unlink(missing_ok=True)
        return None

    def running(self) -> list[ProcessIdentity]:
        """The job in the pane's foreground; none where its shell waits for one."""
        pane = find_pane(self._wanted)
        return (
            []
            if pane is None
            else [process for process in foreground(pane) if process.pid != pane.pid]
        )

    def end(self) -> None:
        """Leave the pane as it was found."""
        pane = find_pane(self._wanted)
        if pane is not None and self.spool.exists() and pane.piped:
            end_capture(pane)

    def _read_raw(self) -> bytes:
        """The newest lines of what was captured: a pane may be set to keep any number."""
        try:
            with self._raw.open("rb") as file:
                begin = max(0, file.seek(0, os.SEEK_END) - _MOST_OF_A_PANE)
                file.seek(begin)
                data = file.read()
        except FileNotFoundError:
            return b""
        return data.partition(b"\n")[2] if begin else data

    def _is_being_begun(self) -> bool:
        """Whether the program that an earlier supervisor started still writes the history."""
        try:
            with self._raw.open("rb") as file:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except FileNotFoundError:
            return False
        except BlockingIOError:
            return True
        return False


def find_pane(wanted: PaneConfig) -> Pane | None:
    """The pane that `Pane.to_dict` described, while it exists."""
    name = wanted.name
    if wanted.program == "tmux":
        panes = tmux_panes(wanted.server)
    else:
        panes = screen_windows(name.rpartition(":")[0])
    return next((pane for pane in panes if pane.name == name), None)
