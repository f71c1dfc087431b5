"""From the mirror into `metrics.db`: each byte once, offset and points in one transaction."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from trainer_runtime.core.journal import Record, TransitionError
from trainer_runtime.core.progress import Progress
from trainer_runtime.core.protocol import Event, ProtocolError, complete_lines, decode, number
from trainmaster.metrics_store import MetricsStore, Point, StoredEvent
from trainmaster.mirror import PlacementMirror

_CHUNK_BYTES = 8 << 20
_JOURNAL = "supervisor.jsonl"
# Kinds that are kept as points alone.
_POINTS_ONLY = frozenset({"metric", "sample"})


def ingest_placement(
    store: MetricsStore, mirror: PlacementMirror, run_id: str, placement: int
) -> bool:
    """Take in what is new in a placement's mirror; True if there was anything.

    The caller holds the host's follower lock.
    """
    if not _new_files(store, mirror, run_id, placement):
        return False
    with store.writing():
        take_in(store, mirror, run_id, placement)
    return True


def take_in(store: MetricsStore, mirror: PlacementMirror, run_id: str, placement: int) -> None:
    """The same, within the caller's `store.writing()`."""
    for name in _new_files(store, mirror, run_id, placement):
        _ingest_file(store, mirror, run_id, placement, name)


def _new_files(
    store: MetricsStore, mirror: PlacementMirror, run_id: str, placement: int
) -> list[str]:
    """The journal last: its news of an end never precede the points."""
    names = [f"attempts/{attempt}/events.jsonl" for attempt in mirror.attempts()] + [_JOURNAL]
    return [name for name in names if mirror.size(name) > store.offset(run_id, placement, name)]


def _ingest_file(
    store: MetricsStore, mirror: PlacementMirror, run_id: str, placement: int, name: str
) -> None:
    attempt = 0 if name == _JOURNAL else int(name.split("/")[1])
    fold = _load_fold(store, run_id, placement, attempt)
    offset = store.offset(run_id, placement, name)
    while data := mirror.read(name, offset, _CHUNK_BYTES):
        lines, used = complete_lines(data)
        if used == 0 and len(data) < _CHUNK_BYTES:
            break  # a line still being written
        events = list(_events(lines))
        for segment, points in fold.take(events):
            store.add_points(run_id, placement, attempt, segment, points)
        store.add_events(run_id, placement, _stored(events, attempt))
        offset += used or len(data)  # a line longer than a chunk is no event of ours
    store.put_fold(run_id, placement, attempt, fold.to_dict())
    store.set_offset(run_id, placement, name, offset)


def _events(lines: list[bytes]) -> Iterator[Event]:
    for line in lines:
        try:
            yield decode(line)
        except ProtocolError:
            continue  # torn by a kill; the mirror keeps it as it is


def _stored(events: list[Event], attempt: int) -> list[StoredEvent]:
    kept = [event for event in events if event["kind"] not in _POINTS_ONLY]
    return [
        StoredEvent(
            attempt=attempt,
            seq=event["seq"],
            t=event["t"],
            kind=event["kind"],
            step=event.get("step"),
            body={key: event[key] for key in event if key not in ("v", "seq", "t", "kind")},
        )
        for event in kept
    ]


class _AttemptFold:
    """An attempt's progress, and the segment that its steps are in."""

    def __init__(self, progress: Progress, segment: int, newest_step: int) -> None:
        self._progress = progress
        self._segment = segment
        self._newest_step = newest_step

    def take(self, events: list[Event]) -> Iterator[tuple[int, list[Point]]]:
        points: list[Point] = []
        for event in events:
            self._progress.apply(event)
            if event["kind"] not in ("metric", "eval"):
                continue
            step = int(event["step"])
            if step < self._newest_step:
                yield self._segment, points
                self._segment, points = self._segment + 1, []
            self._newest_step = step
            points.extend(_points(event, step))
        yield self._segment, points

    def to_dict(self) -> dict[str, Any]:
        return {
            "progress": self._progress.to_dict(),
            "segment": self._segment,
            "newest_step": self._newest_step,
        }


class _JournalFold:
    """The supervisor's record, and its telemetry."""

    def __init__(self, record: Record) -> None:
        self._record = record

    def take(self, events: list[Event]) -> Iterator[tuple[int, list[Point]]]:
        points: list[Point] = []
        for event in events:
            try:
                self._record.apply(event)
            except TransitionError:
                continue  # only a damaged journal tells of one
            if event["kind"] == "sample":
                points.extend(_points(event, round(event["t"] * 1000)))
        yield 0, points

    def to_dict(self) -> dict[str, Any]:
        return {"record": self._record.to_dict()}


def _load_fold(
    store: MetricsStore, run_id: str, placement: int, attempt: int
) -> _AttemptFold | _JournalFold:
    body = store.fold(run_id, placement, attempt)
    if attempt == 0:
        return _JournalFold(Record.from_dict(body["record"]) if body else Record())
    if body is None:
        return _AttemptFold(Progress(attempt), 0, -1)
    return _AttemptFold(Progress.from_dict(body["progress"]), body["segment"], body["newest_step"])


def _points(event: Event, x: int) -> Iterator[Point]:
    for key, raw in (event.get("values") or {}).items():
        value = number(raw)
        if value is not None:
            yield Point(key, x, event["t"], value)
