"""Reads a run's copied log by the pattern that its user taught, as a host would have read it."""

from __future__ import annotations

from itertools import groupby

from trainer_runtime.core.diagnosis.detectors import Detectors
from trainer_runtime.core.diagnosis.parse import LogParser, Point
from trainer_runtime.core.diagnosis.parse.pattern import taught
from trainer_runtime.core.protocol.event import Event
from trainer_runtime.core.protocol.finding import Finding


class TaughtLog:
    """One attempt's log, from its first line on. `offset`: how far it was read, in bytes."""

    def __init__(self, pattern: str, placement: int, attempt: int) -> None:
        self.offset = 0
        self._parser = LogParser(patterns=taught(pattern))
        self._detectors = Detectors(placement=placement, attempt=attempt)
        self._first_rank: dict[str, int] = {}
        self._target_step: int | None = None
        self._has_started = False

    def feed(self, data: bytes, t: float) -> list[Event]:
        """The events of the lines that `data` completes, each metric of the first rank that reports
        it. `t`: of lines without a time."""
        self.offset += len(data)
        first = self._first_rank.setdefault
        points = [p for p in self._parser.feed(data) if p.rank == first(p.key, p.rank)]
        events = []
        if points and not self._has_started:
            self._has_started = True
            events.append(Event.of(0, t, "started", points[0].step))
        target = self._parser.total_steps
        if self._has_started and target != self._target_step:
            self._target_step = target
            events.append(Event.of(0, t, "target", fields={"target_step": target}))
        for (_, segment, step, kind), line in groupby(points, _event_of):
            of_line = list(line)
            values = {point.key: point.value for point in of_line}
            fields = {"values": values, "segment": segment}
            events.append(Event.of(0, of_line[0].t or t, kind, step, fields))
        for event in events:
            self._detectors.feed(event)
        return events

    def findings(self) -> list[Finding]:
        """What is wrong with its series now."""
        return self._detectors.findings()


def _event_of(point: Point) -> tuple[int, int, int, str]:
    kind = "eval" if point.key.startswith("val_") else "metric"
    return point.line_offset, point.segment, point.step, kind
