"""Feeds the series of a log to the detectors, in the order of the log."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from itertools import groupby

from trainer_runtime.core.diagnosis.detectors import Detectors
from trainer_runtime.core.diagnosis.parse import Batch, LogEvent, LogParser, Parsed
from trainer_runtime.core.diagnosis.parse.parser import BLOCK_BYTES
from trainer_runtime.core.diagnosis.parse.pattern import Pattern
from trainer_runtime.core.diagnosis.rank_aggregates import (
    FEWEST_RANKS,
    PACE_KEYS,
    RankAggregate,
    RankAggregates,
    described,
)
from trainer_runtime.core.protocol.finding import Finding
from trainmaster.answers.metrics import LogCoverage
from trainmaster.metrics.log_aggregates import aggregated
from trainmaster.metrics.log_pattern import refuse_without_match
from trainmaster.metrics.understood import Understood

_Columns = list[tuple[str, Sequence[float]]]
# More than almost any training has; each costs some 8 microseconds.
MOST_STEPS = 1_000_000


class LogSeries:
    """Reads points from a log and watches them; of each metric one rank's, the first to report it.
    Where several ranks report their pace, it is compared.

    Bounded: after `most_steps` rows nothing more is read, and `until_step` says where that was.
    `losses` is the number of training losses read.
    """

    def __init__(self, most_steps: int = MOST_STEPS, patterns: Sequence[Pattern] = ()) -> None:
        self._parser = LogParser(patterns=patterns)
        self._detectors = Detectors(placement=0, attempt=0)
        self._rank_of: dict[str, int] = {}
        self._ranks: set[int] = set()
        self._aggregates = RankAggregates()
        self._left = most_steps
        self.until_step: int | None = None
        self.last_step: int | None = None
        self._has_completed = False
        self.losses = 0
        self._understood = Understood()
        self._interval = 0  # between the last two steps that were printed

    def feed(self, data: bytes) -> None:
        """`data` may end anywhere."""
        for start in range(0, len(data), BLOCK_BYTES):
            if self._left <= 0:
                return
            self._take(self._parser.feed(data[start : start + BLOCK_BYTES]))

    def read_share(self) -> float | None:
        """The parsed share of the lines with numbers, 0 to 1; None where there are none."""
        coverage = self._parser.coverage
        return round(coverage.share, 4) if coverage.lines_with_numbers else None

    def refuse_without_match(self, name: str) -> None:
        """Raises:
        UsageError: `PATTERN_MATCHES_NOTHING`.
        """
        refuse_without_match(name, self._parser.coverage)

    def understood(self, frequent: Sequence[str]) -> LogCoverage:
        """What was understood of the log, once it was read; of nothing the lines `frequent`."""
        self._understood.finish(self._parser)
        if not self._understood.keys:
            self._parser.coverage.samples = list(frequent)
        return self._understood.answer(self._parser.coverage, max(0, len(self._ranks) - 1))

    @property
    def steps_left(self) -> tuple[int, int] | None:
        """The last step and the planned one, where the log ends before that without saying so.

        The last step need not be printed: it may lie between two lines of the log.
        """
        last, target = self.last_step, self._parser.total_steps
        if not last or target is None or self.until_step is not None:
            return None
        is_early = last + max(1, self._interval) < target
        return (last, target) if is_early and not self._has_completed else None

    def findings(self) -> tuple[list[Finding], set[str]]:
        """All findings, by onset, and the ids of those that are over. Ends the reading."""
        if self._left > 0:
            self._take(self._parser.close())
            self._compare(self._aggregates.finish())
        findings = self._detectors.findings(closed=True)
        return findings, {finding.id for finding in findings} - {
            finding.id for finding in self._detectors.findings()
        }

    def _take(self, parsed: Parsed) -> None:
        self._understood.take(parsed)
        batches = [
            (batch, columns) for batch in parsed.batches if (columns := self._watched(batch))
        ]
        events = [event for event in parsed.events if self._is_first(event.kind, event.rank)]
        if len(batches) == 1 and not events:
            for row in range(len(batches[0][0].steps)):
                self._row(*batches[0], row)
        else:
            self._in_order(batches, events)
        for _, of_block in groupby(parsed.batches, key=lambda batch: id(batch.block)):
            self._compare_ranks(list(of_block))
        for batch, columns in batches:
            self._reach(batch.steps)
            self.losses += sum(len(column) for key, column in columns if key == "loss")
        rows = sum(len(batch.steps) for batch, _ in batches)
        self._left -= rows
        if rows and self._left <= 0:
            self.until_step = int(batches[-1][0].steps[-1])

    def _reach(self, steps: Sequence[float]) -> None:
        before = self.last_step if len(steps) < 2 else int(steps[-2])
        self.last_step = int(steps[-1])
        if before is not None and self.last_step != before:
            self._interval = abs(self.last_step - before)

    def _in_order(self, batches: list[tuple[Batch, _Columns]], events: list[LogEvent]) -> None:
        ordered: list[tuple[int, int, int]] = [
            (batch.offset_of(row), number, row)
            for number, (batch, _) in enumerate(batches)
            for row in range(len(batch.steps))
        ]
        # Events follow the points of their own line.
        ordered += [(event.line_offset, len(batches), n) for n, event in enumerate(events)]
        for _, number, row in sorted(ordered):
            if number < len(batches):
                self._row(*batches[number], row)
            else:
                self._event(events[row])

    def _compare_ranks(self, batches: list[Batch]) -> None:
        self._ranks.update(batch.rank for batch in batches)
        if len(self._ranks) >= FEWEST_RANKS:
            self._compare(aggregated(self._aggregates, batches, PACE_KEYS))

    def _compare(self, aggregates: list[RankAggregate]) -> None:
        by_step: dict[tuple[int, int], list[RankAggregate]] = defaultdict(list)
        for aggregate in aggregates:
            by_step[aggregate.segment, aggregate.step].append(aggregate)
        for (_, step), of_step in by_step.items():
            fields = {"step": step, **described(of_step)}
            self._detectors.event("rank_metric", None, step, fields)

    def _watched(self, batch: Batch) -> _Columns:
        """The columns that a detector reads."""
        return [
            (key, list(column))
            for key, column in zip(batch.keys, batch.columns, strict=True)
            if key in self._detectors.keys and self._is_first(key, batch.rank)
        ]

    def _is_first(self, name: str, rank: int) -> bool:
        return self._rank_of.setdefault(name, rank) == rank

    def _row(self, batch: Batch, columns: _Columns, row: int) -> None:
        step, t, point = int(batch.steps[row]), batch.time_of(row), self._detectors.point
        for key, column in columns:
            point(key, step, t, column[row])

    def _event(self, event: LogEvent) -> None:
        fields = None
        self._has_completed |= event.kind == "completed"
        if event.kind == "started":
            target = event.text.strip()
            fields = {"target_step": int(target)} if _is_count(target) else None
        self._detectors.event(event.kind, None, event.step, fields)


def _is_count(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= 15
