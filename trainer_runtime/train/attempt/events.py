"""The trainer's side of `events.jsonl`: one line per event, appended and never lost half-way.

A full disk does not end the training: what can't be written waits in memory, in order, and goes out
with a later event. `sync` refuses to promise durability while something waits.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from trainer_runtime.core.config import RunConfig
from trainer_runtime.core.protocol import lines as protocol

_LONGEST_LINE_BYTES = 1024 * 1024


class EventLog:
    """Appends events; safe to use from several threads of one process."""

    def __init__(
        self,
        path: Path,
        clock: Callable[[], float] = time.time,
        left_out: frozenset[str] = frozenset(),
    ) -> None:
        """`left_out`: the kinds of events that are not written."""
        self._clock, self._left_out = clock, left_out
        self._lock = threading.Lock()
        self._descriptor = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        self._next_seq, torn = _tail(self._descriptor)
        self._waiting = bytearray(b"\n" if torn else b"")
        self._reported_write_error = False

    def emit(self, kind: str, **fields: Any) -> None:
        """Appends one event. If the disk fails, it says so on stderr once and buffers the event."""
        if kind in self._left_out:
            return
        with self._lock:
            self._waiting += protocol.encode(self._next_seq, self._clock(), kind, fields)
            self._next_seq += 1
            try:
                self._write_waiting()
            except OSError as error:
                self._report(error)

    def sync(self) -> None:
        """Makes every event so far durable.

        Raises:
            OSError: some can't be written.
        """
        with self._lock:
            self._write_waiting()
            os.fsync(self._descriptor)

    def close(self) -> None:
        """Writes the buffered events as far as possible."""
        try:
            self.sync()
        except OSError as error:
            self._report(error)
        os.close(self._descriptor)

    def _write_waiting(self) -> None:
        # A partly written line is completed by the next write: the file has no other writer.
        while self._waiting:
            written = os.write(self._descriptor, self._waiting)
            del self._waiting[:written]

    def _report(self, error: OSError) -> None:
        if not self._reported_write_error:
            self._reported_write_error = True
            print(f"events.jsonl can't be written, events wait: {error}", file=sys.stderr)


def events_of(config: RunConfig, path: Path) -> EventLog:
    """The log of an attempt. That the loss diverges is what a range test is for, and no warning."""
    left_out = frozenset({"warning"}) if config.schedule.is_range_test else frozenset[str]()
    return EventLog(path, left_out=left_out)


def _tail(descriptor: int) -> tuple[int, bool]:
    """The next sequence number, and whether the last line was left torn."""
    size = os.fstat(descriptor).st_size
    data = os.pread(descriptor, _LONGEST_LINE_BYTES, max(0, size - _LONGEST_LINE_BYTES))
    lines, end = protocol.complete_lines(data)
    for line in reversed(lines):
        try:
            return protocol.decode(line).seq + 1, end != len(data)
        except protocol.ProtocolError:
            continue
    return 0, end != len(data)
