"""What the monitors of one name have reported, in a file of the home.

Lines of JSON, appended after each event was reported: {"began"}, {"run", "at", "state"} and
{"condition", "is"}; the newest of a run or condition counts. One write per line and none buffered,
so that kill -9 leaves whole lines.
"""

from __future__ import annotations

import json
import os
import re
from dataclasses import dataclass

from trainer_runtime.core.decoding import DecodingError, Fields, decode_fields
from trainer_runtime.core.files.durable import try_lock, write_atomic
from trainmaster.errors.errors import UsageError
from trainmaster.home.paths import Home
from trainmaster.runs.events.positions import Position, position_of

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


@dataclass(frozen=True, slots=True)
class Reported:
    """Of one run: the position after the newest event that was reported, and the state then."""

    position: Position
    state: str


class MonitorRecord:
    """What was reported under a name.

    One process at a time keeps it, by a lock that the kernel frees. Others of the same name report
    what happens from their start on, and keep nothing until the lock is free.
    """

    def __init__(self, home: Home, name: str, now: float) -> None:
        """Raises: UsageError: `BAD_ARGUMENT`, not a name for a file."""
        if not _NAME.fullmatch(name):
            raise UsageError(
                "BAD_ARGUMENT",
                f"{name[:80]!r} can't name a monitor.",
                "Use at most 64 letters, digits, dots, dashes and underscores.",
                field="name",
            )
        self._path = home.monitor(name)
        self._lock: int | None = None
        self._file: int | None = None
        self.began_t = now
        self.is_new = True
        self.reported: dict[str, Reported] = {}
        self.conditions: dict[str, str] = {}
        if self._take_lock():
            self._read()
            self._rewrite()

    def take_over(self) -> None:
        """Keep what was reported from here on, where no other process does any more."""
        if self._lock is not None or not self._take_lock():
            return
        mine, self.reported = self.reported, {}
        conditions, began_t = self.conditions, self.began_t
        self._read()
        self.reported |= mine
        self.conditions, self.began_t = conditions, min(self.began_t, began_t)
        self._rewrite()

    def put_run(self, run_id: str, reported: Reported) -> None:
        self.reported[run_id] = reported
        self._append(_run_row(run_id, reported))

    def pass_over(self, run_id: str, reported: Reported) -> None:
        """Nothing was reported: without the line, the same is found again."""
        self.reported[run_id] = reported

    def put_condition(self, key: str, token: str | None) -> None:
        """`token` distinguishes one occurrence from the next; None: it is over."""
        if token is None:
            self.conditions.pop(key, None)
        else:
            self.conditions[key] = token
        self._append({"condition": key, "is": token})

    def close(self) -> None:
        """Leave the record to others."""
        if self._file is not None:
            os.close(self._file)
            self._rewrite()
        for descriptor in (self._file, self._lock):
            if descriptor is not None:
                os.close(descriptor)
        self._file = self._lock = None

    def _take_lock(self) -> bool:
        self._lock = try_lock(self._path.with_suffix(".lock"))
        return self._lock is not None

    def _read(self) -> None:
        try:
            lines = self._path.read_bytes().splitlines()
        except FileNotFoundError:
            return
        self.is_new = False
        for line in lines:
            try:
                self._fold(decode_fields(line, self._path.name))
            except DecodingError:  # the disk was full: the event before it is reported again
                continue

    def _fold(self, row: Fields) -> None:
        if (began_t := row.find_time("began")) is not None:
            self.began_t = began_t
        elif (run_id := row.find_text("run")) is not None:
            position = position_of(row.text("at"))
            if position is not None:
                self.reported[run_id] = Reported(position, row.text("state"))
        elif (token := row.find_text("is")) is not None:
            self.conditions[row.text("condition")] = token
        else:
            self.conditions.pop(row.text("condition"), None)

    def _rewrite(self) -> None:
        """Only what counts, and open for what follows."""
        rows: list[dict[str, object]] = [{"began": self.began_t}]
        rows += [_run_row(run_id, reported) for run_id, reported in self.reported.items()]
        rows += [{"condition": key, "is": token} for key, token in self.conditions.items()]
        self._path.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(self._path, b"".join(map(_line, rows)))
        self._file = os.open(self._path, os.O_WRONLY | os.O_APPEND)

    def _append(self, row: dict[str, object]) -> None:
        if self._file is not None:
            os.write(self._file, _line(row))


def _run_row(run_id: str, reported: Reported) -> dict[str, object]:
    return {"run": run_id, "at": str(reported.position), "state": reported.state}


def _line(row: dict[str, object]) -> bytes:
    return json.dumps(row, separators=(",", ":")).encode() + b"\n"
