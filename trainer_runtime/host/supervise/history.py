"""A run's history as its supervisor knows it: folded from files, continued by what it writes.

Derived from the run's files and never needed: one that is damaged, of another version, or does not
fit to the files is ignored, and everything is read from its beginning.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import trainer_runtime
from trainer_runtime.core.decoding import MAX_DOCUMENT_BYTES
from trainer_runtime.core.files.regular import read_regular
from trainer_runtime.core.processes.cgroup_limits import host_memory_gib
from trainer_runtime.core.protocol.followed_files import TAIL_BYTES
from trainer_runtime.core.protocol.journal import Record
from trainer_runtime.core.protocol.lines import ODD_FIELDS, Event, ProtocolError, decode
from trainer_runtime.core.protocol.progress import Progress
from trainer_runtime.core.protocol.states import AttemptState
from trainer_runtime.host.alerts.outbox import Alerting
from trainer_runtime.host.files.compacted import read_at
from trainer_runtime.host.files.files import LineReader
from trainer_runtime.host.files.layout import RunFolder
from trainer_runtime.host.supervise.record import Journal
from trainer_runtime.host.watch.watcher import Watch

# Changes whenever the folded state means something else.
_FORMAT = f"1 of {trainer_runtime.__version__}"
# Events: the maximum of what the next supervisor reads from before, a tenth of a second.
SNAPSHOT_EVERY = 5000
JOURNAL = 0


class History:
    """The journal's record, each attempt's progress, findings and alerts, in step with each other.

    `recall` first: until then only the record is known. `keep` writes a snapshot once
    `snapshot_every` events have come.
    """

    def __init__(
        self,
        run: RunFolder,
        clock: Callable[[], float],
        snapshot: Snapshot,
        snapshot_every: int = SNAPSHOT_EVERY,
    ) -> None:
        """Raises:
        ValueError, KeyError, TypeError, AttributeError: another version wrote the snapshot.
        """
        self._run = run
        self._since_snapshot, self._snapshot_every = 0, snapshot_every
        parts, offsets = snapshot.parts, snapshot.offsets
        self.watch = Watch(run, self.write, host_memory_gib=host_memory_gib())
        if "watch" in parts:
            self.watch.restore(parts["watch"])
        self.events = AttemptEvents(run, self._hear)
        for body in parts.get("progress", ()):
            progress = Progress.from_dict(body)
            self.events.follow_from(progress, offsets[_events_of(progress.attempt)])
        self.alerts = Alerting(run, clock, self.write, parts.get("alerts"))
        record = Record.from_dict(parts["record"]) if "record" in parts else Record()
        self._living = _living(record)
        self._begin = offsets.get(run.journal.name, 0)
        self.journal = Journal(run.journal, clock, record, self._begin)

    def write(self, kind: str, fields: Mapping[str, object]) -> None:
        """Append an event to the journal, as `Journal.write` does."""
        self.journal.write(kind, fields)

    def recall(self, meanwhile: Callable[[], None]) -> None:
        """Take in the events of the time before, and from then on what is written.

        `meanwhile` is called after each, since a history without a snapshot takes long: a million
        steps some twenty seconds. What it writes comes after them.
        """
        for attempt in self.journal.record.attempts:
            # An attempt that left nothing, as its machine was lost, is known by the journal alone.
            self.events.follow(attempt.number, attempt.started_at_step)
        written: list[Event] = []
        self.journal.listen(written.append)
        before = LineReader(self._run.journal, self._begin, self.journal.size)
        for number, event in replayed(before, self.events.readers, self._living):
            if number == JOURNAL:
                self._hear(number, event)
            else:
                self.events.take(number, event)
            meanwhile()
        for event in written:
            self._hear(JOURNAL, event)
        self.journal.listen(lambda event: self._hear(JOURNAL, event))

    def keep(self) -> None:
        """Write a snapshot where much has come since the last one.

        Raises:
            OSError: it can't be written.
        """
        if self._since_snapshot < self._snapshot_every:
            return
        progress = self.events.progress
        parts = {
            "record": self.journal.record.to_dict(),
            "progress": [entry.to_dict() for entry in progress.values()],
            "watch": self.watch.to_dict(),
            "alerts": self.alerts.to_dict(),
        }
        offsets = {_events_of(number): self.events.readers[number].offset for number in progress}
        offsets[self._run.journal.name] = self.journal.size
        write_snapshot(self._run, Snapshot(parts, offsets))
        self._since_snapshot = 0

    def close(self) -> None:
        self.alerts.close()
        self.journal.close()

    def _hear(self, attempt: int, event: Event) -> None:
        self._since_snapshot += 1
        self.watch.feed_event(attempt, event)


def open_history(
    run: RunFolder, clock: Callable[[], float], snapshot_every: int = SNAPSHOT_EVERY
) -> History:
    """The history up to the newest snapshot; from the files' beginning where none fits."""
    snapshot = read_snapshot(run)
    if snapshot is not None:
        try:
            return History(run, clock, snapshot, snapshot_every)
        except ODD_FIELDS:
            pass  # of another version
    return History(run, clock, Snapshot(), snapshot_every)


def _living(record: Record) -> int | None:
    current = record.current
    is_over = current is None or current.state is AttemptState.ENDED
    return None if is_over or current is None else current.number


def _events_of(attempt: int) -> str:
    return f"attempts/{attempt}/events.jsonl"


class AttemptEvents:
    """`progress` and `readers` by attempt. `feed` gets each event once it is folded."""

    def __init__(self, run: RunFolder, feed: Callable[[int, Event], None]) -> None:
        self._run = run
        self._feed = feed
        self.progress: dict[int, Progress] = {}
        self.readers: dict[int, LineReader] = {}

    def follow(self, number: int, started_at_step: int | None = None) -> None:
        """Add an attempt, though it may have reported nothing yet."""
        if number not in self.progress:
            self.follow_from(Progress(number, started_at_step), 0)

    def follow_from(self, progress: Progress, offset: int) -> None:
        """Add an attempt whose events up to the byte `offset` made its `progress`."""
        number = progress.attempt
        self.progress[number] = progress
        self.readers[number] = LineReader(self._run.attempt(number).events, offset)

    def read(self, number: int) -> None:
        """Take in what is new of an attempt."""
        self.follow(number)
        for line in self.readers[number].read():
            try:
                event = decode(line)
            except ProtocolError:
                continue  # a line torn by a kill; the mirror keeps it as it is
            self.take(number, event)

    def take(self, number: int, event: Event) -> None:
        """Fold one event of an attempt that is followed, and hand it on."""
        self.progress[number].apply(event)
        self._feed(number, event)


def replayed(
    journal: LineReader, attempts: Mapping[int, LineReader], living_attempt: int | None = None
) -> Iterator[tuple[int, Event]]:
    """Every event with its attempt's number, `JOURNAL` for the journal's own, as they came.

    By time, but that an attempt's events stand between its start and its end whatever the clock did
    meanwhile. The readers stand where they end afterwards. `living_attempt`: the one that was
    alive where the readers begin.
    """
    streams = {number: _Events(number, reader) for number, reader in attempts.items()}
    living = None if living_attempt is None else streams.get(living_attempt)
    for event in _decoded(journal):
        if living is not None:
            over = event.kind == "attempt_ended"
            yield from living.until(math.inf if over else event.t)
        yield JOURNAL, event
        if event.kind == "attempt_starting":
            attempt = event.document.get("attempt")
            living = streams.get(attempt) if type(attempt) is int else None
    for number in sorted(streams):
        yield from streams[number].until(math.inf)


class _Events:
    """An attempt's events, as far as they were asked for. Its file is open meanwhile."""

    def __init__(self, number: int, reader: LineReader) -> None:
        self._number = number
        self._rest = _decoded(reader)
        self._next: Event | None = None
        self._begun = False

    def until(self, t: float) -> Iterator[tuple[int, Event]]:
        if not self._begun:
            self._begun, self._next = True, next(self._rest, None)
        while self._next is not None and self._next.t <= t:
            yield self._number, self._next
            self._next = next(self._rest, None)


def _decoded(reader: LineReader) -> Iterator[Event]:
    for line in reader.read():
        try:
            yield decode(line)
        except ProtocolError:
            continue  # a line torn by a kill


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Folded state by part, as JSON values, and how many bytes of each file are in it.

    `offsets`: by the file's name in the run's folder.
    """

    parts: Mapping[str, Any] = field(default_factory=dict)
    offsets: Mapping[str, int] = field(default_factory=dict)


def read_snapshot(run: RunFolder) -> Snapshot | None:
    """The newest snapshot that fits to the run's files, of the two that are kept; None for none."""
    return _read(run, run.snapshot) or _read(run, run.older_snapshot)


def write_snapshot(run: RunFolder, snapshot: Snapshot) -> None:
    """Replace the snapshot and keep the one before.

    Numbers that are not finite are written by name, as Python reads them: a validation loss that is
    infinite may stay the newest for days. Not fsynced: where a power cut tears the newest, the one
    before has long been on the disk.

    Raises:
        OSError: it can't be written.
    """
    files = {name: [at, _tail(run.root / name, at)] for name, at in snapshot.offsets.items()}
    body = {"format": _FORMAT, "files": files, "parts": snapshot.parts}
    text = json.dumps(body, separators=(",", ":"))
    temporary = run.snapshot.with_name(f".{run.snapshot.name}")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w") as file:
        file.write(text)
    with suppress(FileNotFoundError):
        os.replace(run.snapshot, run.older_snapshot)
    os.replace(temporary, run.snapshot)


def _read(run: RunFolder, path: Path) -> Snapshot | None:
    try:
        data = read_regular(path, MAX_DOCUMENT_BYTES)
        body = json.loads(data)
        if not isinstance(body, dict) or body.get("format") != _FORMAT:
            return None
        ends = body["files"]
        if all(_tail(run.root / name, offset) == tail for name, (offset, tail) in ends.items()):
            return Snapshot(body["parts"], {name: offset for name, (offset, _) in ends.items()})
    except (OSError, RecursionError, *ODD_FIELDS):
        pass
    return None


def _tail(path: Path, offset: int) -> str | None:
    """The bytes before `offset`, by which a file is recognised; None where it has fewer."""
    if offset == 0:
        return ""
    begin = max(0, offset - TAIL_BYTES)
    try:
        with path.open("rb") as file:
            tail = read_at(file.fileno(), str(path), begin, offset - begin)
    except FileNotFoundError:
        return None
    return tail.decode("latin-1") if len(tail) == offset - begin else None
