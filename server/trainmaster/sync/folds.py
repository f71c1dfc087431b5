"""What the events of an attempt, or the lines of a journal, add up to; as `metrics.db` keeps it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, fields
from typing import Any

from trainer_runtime.core.protocol.event import Event
from trainer_runtime.core.protocol.journal import Record, TransitionError
from trainer_runtime.core.protocol.progress import Progress
from trainmaster.store.metrics_rows import Measured

_OF_STEPS = frozenset({"metric", "rank_metric", "eval", "history"})
_PROGRESS_FIELDS = tuple(field.name for field in fields(Progress))


def fold_of(body: dict[str, Any] | None, attempt: int) -> AttemptFold | JournalFold:
    if attempt == 0:
        return JournalFold(Record.from_dict(body["record"]) if body else Record())
    return AttemptFold(body, attempt)


class AttemptFold:
    """An attempt's progress, the segment that its steps are in, and what its taught log shows."""

    def __init__(self, body: dict[str, Any] | None, attempt: int) -> None:
        body = body or {}
        progress = body.get("progress")
        self._progress = Progress.from_dict(progress) if progress else Progress(attempt)
        self._segment: int = body.get("segment", 0)
        self._newest_step: int = body.get("newest_step", -1)
        self.findings: list[dict[str, Any]] | None = body.get("findings")

    def take(self, events: list[Event]) -> Iterator[tuple[int, list[Measured]]]:
        rows: list[Measured] = []
        for event in events:
            self._progress.apply(event)
            if event.kind not in _OF_STEPS:
                continue
            step = event.step or 0
            own_segment = event.document.get(
                "segment"
            )  # by the reader of a foreign log, rank by rank
            segment = self._segment + (step < self._newest_step)
            segment = own_segment if type(own_segment) is int else segment
            if segment != self._segment:
                yield self._segment, rows
                self._segment, rows = segment, []
            self._newest_step = step
            rows.append((step, event.t, event.values))
        yield self._segment, rows

    def to_dict(self) -> dict[str, Any]:
        return {
            "progress": _described(self._progress),
            "segment": self._segment,
            "newest_step": self._newest_step,
            **({} if self.findings is None else {"findings": self.findings}),
        }


class JournalFold:
    """The supervisor's record, and its telemetry."""

    def __init__(self, record: Record) -> None:
        self.record = record

    def take(self, events: list[Event]) -> Iterator[tuple[int, list[Measured]]]:
        rows: list[Measured] = []
        for event in events:
            try:
                self.record.apply(event)
            except TransitionError:
                continue  # a damaged journal
            if event.kind == "sample":
                rows.append((round(event.t * 1000), event.t, event.values))
        yield 0, rows

    def to_dict(self) -> dict[str, Any]:
        return {"record": self.record.to_dict()}


def _described(progress: Progress) -> dict[str, Any]:
    """`progress.to_dict()` without deep copies, for immediate serialization: called for every
    active run several times a second."""
    body = {name: getattr(progress, name) for name in _PROGRESS_FIELDS}
    body["losses"] = progress.losses.to_dict()
    body["spent"] = progress.spent.to_dict()
    body["warnings"] = [asdict(warning) for warning in progress.warnings]
    body["checkpoints"] = {step: asdict(saved) for step, saved in progress.checkpoints.items()}
    return body
