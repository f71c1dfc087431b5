"""Ingests the mirror into `metrics.db`: each byte once, offset and points in one transaction."""

from __future__ import annotations

import gc
import re
import time
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from trainer_runtime.core.protocol.followed_files import EVENTS, JOURNAL, TRAIN_LOG, attempt_of
from trainer_runtime.core.protocol.journal import Record
from trainer_runtime.core.protocol.lines import (
    Event,
    ProtocolError,
    RefusedLineError,
    complete_lines,
    decode,
)
from trainmaster.store.database import is_of_the_database
from trainmaster.store.metrics_rows import StoredEvent
from trainmaster.store.metrics_store import MetricsStore
from trainmaster.store.mirror import PlacementMirror
from trainmaster.store.refusals import HOST_DATA_REFUSED, Quarantine, UnusableDataError
from trainmaster.sync.folds import AttemptFold, JournalFold, fold_of

if TYPE_CHECKING:
    from trainmaster.sync.taught_log import TaughtLog

_CHUNK_BYTES = 8 << 20
# Of one file and transaction: the maximum that is read again after a kill and holds up others.
_PORTION_BYTES = 4 * _CHUNK_BYTES
_LONGER_THAN_A_CHUNK = f"is longer than {_CHUNK_BYTES} bytes"
# Of one file: a few odd lines are left out, a file of them is not worth reading.
MOST_REFUSED_LINES = 100
# Kinds that are stored as points alone.
_POINTS_ONLY = frozenset({"metric", "rank_metric", "history", "sample"})
_TAKEN_IN = re.compile(rf"(?:{re.escape(JOURNAL)}|attempts/\d+/{re.escape(EVENTS)})(?:\.\d+)?")


@dataclass(frozen=True, slots=True)
class MirrorGrowth:
    """A placement whose mirror has grown, in the files `names`; None: in any."""

    run_id: str
    placement: int
    mirror: PlacementMirror
    names: Collection[str] | None


class Ingest:
    """Ingests what mirrors have grown by, many placements in one transaction.

    Caches folds: a cached fold is used while the database's offset equals its own, so no other
    process has ingested since. The caller holds the host's follower lock. `portion_bytes`: of one
    file, the maximum that is ingested in a transaction.
    """

    def __init__(self, store: MetricsStore, portion_bytes: int = _PORTION_BYTES) -> None:
        self._store = store
        self._portion_bytes = portion_bytes
        self._sources: dict[tuple[str, int], dict[str, _Source]] = {}

    def take_in(self, grown: Iterable[MirrorGrowth]) -> None:
        """Ingest what is new, a portion at a time. A mirror that can't be read is retried later; a
        placement whose files can't be folded is quarantined, and no other one with it.

        Raises:
            StorageError, sqlite3.Error: the database can't be used.
        """
        free = self.free(grown)
        while free:
            free = self.take_portion(free)

    def free(self, grown: Iterable[MirrorGrowth]) -> list[MirrorGrowth]:
        """Those that are not quarantined."""
        held = self._store.refusals.quarantined()
        return [growth for growth in grown if (growth.run_id, growth.placement) not in held]

    def take_portion(self, grown: Sequence[MirrorGrowth]) -> list[MirrorGrowth]:
        """Ingest a portion of each; those that have more. As `take_in` otherwise."""
        try:
            return self._together(grown)
        except Exception as error:
            if is_of_the_database(error):
                raise
            return [growth for growth in grown if self._alone(growth)]

    def lag_bytes(self, grown: MirrorGrowth) -> int:
        """How much of a mirror is not ingested; 0 where it can't be read."""
        run_id, placement, mirror = grown.run_id, grown.placement, grown.mirror
        try:
            sizes = {source.key: mirror.size(source.name) for source in _sources(mirror)}
        except OSError:
            return 0
        offset = self._store.offset
        return sum(max(0, size - offset(run_id, placement, key)) for key, size in sizes.items())

    def forget(self, run_id: str, placement: int) -> None:
        """Drop what is cached of a placement."""
        self._sources.pop((run_id, placement), None)
        self._store.forget(run_id, placement)

    def _together(self, grown: Iterable[MirrorGrowth]) -> list[MirrorGrowth]:
        """A portion of each in one transaction: everything, or nothing; those that have more."""
        try:
            due = [(growth, sources_due) for growth in grown if (sources_due := self._due(growth))]
            if not due:
                return []
            with _not_collecting(), self._store.writing():
                return [growth for growth, sources in due if self._placement(growth, sources)]
        except BaseException:
            self._sources.clear()  # they hold what was not committed
            raise

    def _alone(self, grown: MirrorGrowth) -> bool:
        """A portion of one; True where it has more."""
        try:
            return bool(self._together([grown]))
        except Exception as error:
            if is_of_the_database(error):
                raise
            with self._store.writing():
                self._store.refusals.quarantine(grown.run_id, grown.placement, _quarantine(error))
            return False

    def closed(self, run_id: str, placement: int) -> int | None:
        """The newest request answered by the host, where it has nothing more to write."""
        for source in self._sources.get((run_id, placement), {}).values():
            if source.name == JOURNAL and isinstance(source.fold, JournalFold):
                record = source.fold.record
                return record.generation if record.closed else None
        body = self._store.fold(run_id, placement, 0)
        record = Record.from_dict(body["record"]) if body else Record()
        return record.generation if record.closed else None

    def _due(self, grown: MirrorGrowth) -> list[_Source]:
        """The sources to read, the journal last: an end must never precede the points before it."""
        sources = self._sources.get((grown.run_id, grown.placement), {})
        pattern = grown.mirror.pattern()
        is_known = all(one.pattern == pattern for one in sources.values())
        if grown.names is not None and is_known:
            names = [name for name in grown.names if name in sources or _TAKEN_IN.fullmatch(name)]
            names.sort(key=_order)
            if all(name in sources for name in names):
                return [sources[name] for name in names]
        try:
            listed = {source.name: source for source in _sources(grown.mirror)}
            sizes = {name: grown.mirror.size(name) for name in listed}
        except OSError:
            return []
        self._sources[grown.run_id, grown.placement] = listed
        return [
            source
            for source in listed.values()
            if sizes[source.name] > self._store.offset(grown.run_id, grown.placement, source.key)
        ]

    def _placement(self, grown: MirrorGrowth, sources: list[_Source]) -> bool:
        """True where a file has more: those after it wait, as the journal reports ends."""
        try:
            return any(
                _ingest_portion(self._store, grown, source, self._portion_bytes)
                for source in sources
            )
        except OSError:
            # Its offset has not moved: the same bytes are ingested again, each point once.
            self._sources.pop((grown.run_id, grown.placement), None)
            return False


def ingest_placement(
    store: MetricsStore, mirror: PlacementMirror, run_id: str, placement: int
) -> bool:
    """Ingest what is new in a placement's mirror; True if there was anything.

    The caller holds the host's follower lock.
    """
    if not any(
        mirror.size(source.name) > store.offset(run_id, placement, source.key)
        for source in _sources(mirror)
    ):
        return False
    Ingest(store).take_in([MirrorGrowth(run_id, placement, mirror, None)])
    return True


@contextmanager
def _not_collecting() -> Iterator[None]:
    """Without the garbage collector: it walks points by the hundred thousand, none of which is in a
    cycle, and takes a quarter of the time."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def _quarantine(error: Exception) -> Quarantine:
    if isinstance(error, UnusableDataError):
        return Quarantine(error.code, error.reason, time.time())
    reason = f"its files can't be read ({type(error).__name__})"
    return Quarantine(HOST_DATA_REFUSED, reason, time.time())


@dataclass(slots=True)
class _Source:
    """One generation of a file in the mirror.

    `key` is its name in the database: the same before and after it is put aside. `fold` is the
    state up to `offset`, where that is known. `pattern`: that of a run whose logs are read, too,
    those `is_log` by `log`; events and log of an attempt have one fold.
    """

    name: str
    key: str
    attempt: int
    put_aside: bool
    offset: int = 0
    fold: AttemptFold | JournalFold | None = None
    pattern: str | None = None
    is_log: bool = False
    log: TaughtLog | None = None


def _sources(mirror: PlacementMirror) -> list[_Source]:
    """The files of a mirror that can be ingested, in order."""
    pattern = mirror.pattern()
    files = (EVENTS,) if pattern is None else (EVENTS, TRAIN_LOG)
    names = [f"attempts/{attempt}/{file}" for attempt in mirror.attempts() for file in files]
    sources = []
    for name in [*names, JOURNAL]:
        *earlier, _ = mirror.generations(name)
        is_log = pattern is not None and name.endswith(f"/{TRAIN_LOG}")
        attempt = attempt_of(name)
        for aside in [] if is_log else earlier:
            key = _key(name, int(aside.rpartition(".")[2]))
            sources.append(_Source(aside, key, attempt, put_aside=True, pattern=pattern))
        newest = int(earlier[-1].rpartition(".")[2]) + 1 if earlier else 1
        key = _key(name, newest)
        sources.append(_Source(name, key, attempt, put_aside=False, pattern=pattern, is_log=is_log))
    return sources


def _key(name: str, generation: int) -> str:
    return name if generation == 1 else f"{name}.{generation}"


def _order(name: str) -> tuple[bool, str]:
    return name.startswith(JOURNAL), name


def _ingest_portion(
    store: MetricsStore, grown: MirrorGrowth, source: _Source, most_bytes: int = _PORTION_BYTES
) -> bool:
    """Ingest what is new of a file, up to a maximum; True where it may have more."""
    run_id, placement = grown.run_id, grown.placement
    if source.fold is None or (source.pattern is not None and source.attempt):
        source.offset = store.offset(run_id, placement, source.key)
        # A new generation starts with an empty fold.
        has_fold = source.offset or source.is_log
        body = store.fold(run_id, placement, source.attempt) if has_fold else None
        source.fold = fold_of(body, source.attempt)
    begin = offset = source.offset
    is_through, chunk_bytes = False, min(_CHUNK_BYTES, most_bytes)
    while not is_through and offset < begin + most_bytes:
        data = grown.mirror.read(source.name, offset, chunk_bytes)
        is_through = len(data) < chunk_bytes
        if source.is_log:
            _ingest_log(store, grown, source, data)
            offset += len(data)
            continue
        lines, used = complete_lines(data)
        if used == 0 and is_through:
            break  # a line still being written, or nothing
        _ingest_lines(store, grown, source, lines if used else None)
        offset += used or len(data)
    if is_through and source.put_aside:
        offset = grown.mirror.size(source.name)  # its torn last line will not be completed
    if offset == begin:
        return False
    if store.move_offset(run_id, placement, source.key, old=begin, new=offset):
        store.put_fold(run_id, placement, source.attempt, source.fold.to_dict())
        source.offset = offset
        return not is_through
    source.fold = None  # another process was faster: ingest again, which replaces the same points
    return _ingest_portion(store, grown, source, most_bytes)


def _ingest_lines(
    store: MetricsStore, grown: MirrorGrowth, source: _Source, lines: list[bytes] | None
) -> None:
    """Fold and store whole lines; None: one that is longer than a chunk."""
    events, refused = ([], [_LONGER_THAN_A_CHUNK]) if lines is None else _events(lines)
    _count_refused(store, grown, source, refused)
    assert source.fold is not None
    for segment, rows in source.fold.take(events):
        store.add_measured(grown.run_id, grown.placement, source.attempt, segment, rows)
    if stored := _stored(events, source.attempt):
        store.add_events(grown.run_id, grown.placement, stored)


def _ingest_log(store: MetricsStore, grown: MirrorGrowth, source: _Source, data: bytes) -> None:
    """Fold and store what follows of a log, behind all that precedes it."""
    from trainmaster.sync.taught_log import TaughtLog  # with it comes the whole parser

    fold, pattern = source.fold, source.pattern
    assert isinstance(fold, AttemptFold)
    assert pattern is not None
    t = grown.mirror.path(source.name).stat().st_mtime
    if source.log is None or source.log.offset > source.offset:
        source.log = TaughtLog(pattern, grown.placement, source.attempt)
    while source.log.offset < source.offset:
        missing = min(_CHUNK_BYTES, source.offset - source.log.offset)
        source.log.feed(grown.mirror.read(source.name, source.log.offset, missing), t)
    events = source.log.feed(data, t)
    for segment, rows in fold.take(events):
        store.add_measured(grown.run_id, grown.placement, source.attempt, segment, rows)
    fold.findings = [finding.to_dict() for finding in source.log.findings()]


def _events(lines: list[bytes]) -> tuple[list[Event], list[str]]:
    """The events, and why each line beyond the limits was refused."""
    events, refused = [], []
    for line in lines:
        try:
            events.append(decode(line))
        except RefusedLineError as error:
            refused.append(str(error))
        except ProtocolError:
            continue  # torn by a kill; the mirror keeps it as it is
    return events, refused


def _count_refused(
    store: MetricsStore, grown: MirrorGrowth, source: _Source, reasons: list[str]
) -> None:
    if not reasons:
        return
    name, reason = source.name, reasons[0]
    total = store.refusals.add(grown.run_id, grown.placement, name, reason, len(reasons))
    if total > MOST_REFUSED_LINES:
        raise UnusableDataError(f"more than {MOST_REFUSED_LINES} lines of {name}: {reason}")


def _stored(events: list[Event], attempt: int) -> list[StoredEvent]:
    return [StoredEvent(attempt, event) for event in events if event.kind not in _POINTS_ONLY]
