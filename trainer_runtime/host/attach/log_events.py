"""Writes a foreign training's log as the events that a trainer of ours would have written.

`train.log` is read from its beginning whenever a supervisor starts: the same lines make the same
events, however the reading is cut, and those that stand already are not written again.
"""

from __future__ import annotations

import os
import re
import time
from collections import defaultdict
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from trainer_runtime.core.diagnosis.parse import Coverage, LogParser, Parsed, Point
from trainer_runtime.core.diagnosis.parse.pattern import taught
from trainer_runtime.core.diagnosis.parse.points import LogEvent
from trainer_runtime.core.diagnosis.rank_aggregates import (
    RankAggregate,
    RankAggregates,
    described,
)
from trainer_runtime.core.files.sparse import data_region
from trainer_runtime.core.policy.write_bounds import Refusal
from trainer_runtime.core.protocol.lines import ProtocolError, decode
from trainer_runtime.host.attach.reported import Report
from trainer_runtime.host.files.files import AppendedLog, LineReader
from trainer_runtime.host.files.layout import AttemptFolder
from trainer_runtime.host.files.write_room import WriteRoom

_CHUNK_BYTES = 1 << 18
# What lines may become as events: the shortest line with a metric has some six bytes, its event two
# hundred.
_WRITTEN_TIMES = 32
# Whose metrics stand by themselves beside those of the first rank that reports one; the
# aggregates are of all ranks.
_MOST_RANKS = 16
_LARGEST_STEP = 2**53
_CLOCK_SLACK_S = 60.0
# Of what a log says, only this much may be taken for a path; the rest could be anything.
_PATH = re.compile(r"[\w./@:+=-]{1,200}")


class LogEvents:
    """Reads an attempt's `train.log` as it grows, and writes its `events.jsonl`.

    A metric belongs to the rank that reported it first; another rank's stands as `<key>/rank<n>`,
    and what three or more ranks report of a step as its `<key>/ranks_min` and so on.
    """

    def __init__(
        self,
        attempt: AttemptFolder,
        clock: Callable[[], float] | None,
        *,
        launched: bool = False,
        pattern: str | None = None,
        room: WriteRoom | None = None,
    ) -> None:
        """`clock`: of events; None: they get the time of the newest one that stands. `launched`: of
        a program that this host has started, whose start, target, checkpoints and end are known
        from elsewhere and are reported by the caller. `pattern`: the shape of its lines, where it
        was taught. `room`: nothing is read while it has none; `refusal` says why."""
        self._path = attempt.train_log
        self._launched = launched
        self._parser = LogParser(patterns=taught(pattern))
        self._offset = 0
        self._room = room
        self.refusal: Refusal | None = None
        self._state = _EventState(attempt)
        self._clock = clock or self._state.newest_t
        self._log = AppendedLog(attempt.events, self._state.last_seq + 1)
        self._count = 0  # of the events that lines have made
        self._reported = 0  # of those that a program's reports have made
        self._first_rank: dict[str, int] = {}
        self._ranks = RankAggregates()
        self._newest: tuple[int, int] | None = None  # step and segment
        self._recent: dict[int, dict[str, float]] = {}
        self._has_pace = False
        self._paced: tuple[float, int] | None = None  # when, and the newest step then
        self._live = False

    def advance(self, *, live: bool) -> bool:
        """Read at most 256 KiB; False where there was nothing new.

        `live`: what is read was written just now, so that the time of reading gives the pace.

        Raises:
            OSError: the events can't be written; a new reader resumes where they end.
        """
        data = self._read()
        if not data:
            return False
        self.refusal = None if self._room is None else self._room.lacks(_WRITTEN_TIMES * len(data))
        if self.refusal is not None:
            return False
        self._live = live
        self._take(self._parser.feed(data))
        self._offset += len(data)
        self._measure_pace()
        return True

    def _read(self) -> bytes:
        """What follows; what was freed of a long log, or never written, is passed over. A log that
        was emptied is read from its start."""
        try:
            with self._path.open("rb") as file:
                if os.fstat(file.fileno()).st_size < self._offset:
                    self._offset = 0
                region = data_region(file.fileno(), self._offset)
                if region is not None and region[0] - self._offset >= _CHUNK_BYTES:
                    self._offset = region[0]
                file.seek(self._offset)
                return b"" if region is None else file.read(_CHUNK_BYTES)
        except FileNotFoundError:
            return b""

    def finish(self) -> None:
        """Take in a last line without an end. Nothing is read afterwards."""
        self._take(self._parser.close())
        self._write_aggregates(self._ranks.finish())
        self._log.sync()

    def say(self, what: str, reason: str) -> None:
        """Report something about the log itself."""
        fields = {"what": what, "reason": reason}
        self._log.append(self._clock(), "decision", fields)

    def decide(self, what: str, **fields: object) -> None:
        """Report a decision with fields of its own."""
        self._log.append(self._clock(), "decision", {"what": what, **fields})

    @property
    def coverage(self) -> Coverage:
        """How much was understood so far."""
        return self._parser.coverage

    @property
    def has_metrics(self) -> bool:
        """Whether its lines had a metric."""
        return bool(self._first_rank)

    @property
    def position(self) -> tuple[int, int]:
        """Up to where the log was read, and its length."""
        return self._offset, self._path.stat().st_size if self._path.exists() else 0

    @property
    def path(self) -> Path:
        return self._path

    def report(self, kind: str, fields: dict[str, Any], t: float | None = None) -> None:
        """Write an event that comes from elsewhere than the log."""
        self._log.append(self._clock() if t is None else t, kind, fields)

    def write_reported(self, report: Report) -> None:
        """Write the metrics that a program reports itself, unless they were written already."""
        for kind, values in (("metric", report.trained), ("eval", report.evaluated)):
            if not values:
                continue
            self._reported += 1
            if self._reported > self._state.reported:
                fields = {"r": self._reported, "step": report.step, "values": dict(values)}
                self.report(kind, fields, report.t)

    def take_recent(self) -> dict[int, dict[str, float]]:
        """The metrics of the steps that were read since the last call, where `launched`."""
        recent, self._recent = self._recent, {}
        return recent

    def sync(self) -> None:
        """Make what was written durable."""
        self._log.sync()

    def close(self) -> None:
        self._log.close()

    def _take(self, parsed: Parsed) -> None:
        lines: dict[int, list[Point | LogEvent]] = defaultdict(list)
        for point in parsed:
            lines[point.line_offset].append(point)
        for event in parsed.events:
            lines[event.line_offset].append(event)
        for offset in sorted(lines):
            items = lines[offset]
            self._take_points([item for item in items if isinstance(item, Point)])
            for item in sorted(
                (item for item in items if isinstance(item, LogEvent)),
                key=lambda item: (item.kind, item.text),
            ):
                self._take_event(item)
        target = self._parser.total_steps
        is_new = target is not None and target != self._state.target_step
        if is_new and self._newest is not None and not self._launched:
            self._log.append(self._clock(), "target", {"target_step": target})
            self._state.target_step = target

    def _take_points(self, points: list[Point]) -> None:
        """The metrics of one line, each (rank, segment, step) of it an event by itself."""
        groups: dict[tuple[int, int, int, bool], dict[str, float]] = {}
        times: dict[tuple[int, int, int, bool], float | None] = {}
        aggregates: list[RankAggregate] = []
        for point in points:
            step = int(point.step)
            if not 0 <= step < _LARGEST_STEP:
                continue
            aggregates += self._ranks.add(
                point.key, point.segment, step, point.rank, point.value, point.t
            )
            first = self._first_rank.setdefault(point.key, point.rank)
            other = point.rank != first
            key = f"{point.key}/rank{point.rank}" if other else point.key
            if other and point.rank >= _MOST_RANKS:
                continue
            group = (point.segment, step, point.rank, other)
            groups.setdefault(group, {})[key] = point.value
            times[group] = point.t
        for group in sorted(groups):
            segment, step, _, other = group
            self._write_values(step, segment, groups[group], times[group], other)
        self._write_aggregates(aggregates)

    def _write_aggregates(self, aggregates: list[RankAggregate]) -> None:
        """What many ranks reported of a step, an event for each step."""
        by_step: dict[tuple[int, int], list[RankAggregate]] = defaultdict(list)
        for aggregate in aggregates:
            by_step[aggregate.segment, aggregate.step].append(aggregate)
        for (segment, step), of_step in by_step.items():
            fields = {"step": step, "segment": segment, **described(of_step)}
            self._write(of_step[0].t, "rank_metric", fields)

    def _write_values(
        self, step: int, segment: int, values: dict[str, float], t: float | None, other: bool
    ) -> None:
        if other:
            self._write(t, "rank_metric", {"step": step, "values": values, "segment": segment})
            return
        if self._newest is None and not self._launched:
            self._write(t, "started", {"step": step})
        if self._launched:
            self._recent.setdefault(step, {}).update(values)
        self._newest = (step, segment)
        self._has_pace = self._has_pace or "step_time_s" in values
        of_eval = _evaluated(values)
        trained = {key: value for key, value in values.items() if key not in of_eval}
        evaluated = {key: value for key, value in values.items() if key in of_eval}
        for kind, part in (("metric", trained), ("eval", evaluated)):
            if part:
                self._write(t, kind, {"step": step, "values": part, "segment": segment})

    def _take_event(self, event: LogEvent) -> None:
        step = event.step if event.step is not None else (self._newest or (0, 0))[0]
        if not 0 <= step < _LARGEST_STEP or self._launched:
            return
        if event.kind == "checkpoint":
            path = event.text if _PATH.fullmatch(event.text) else ""
            self._write(None, "checkpoint", {"step": step, "action": "saved", "path": path})
        elif event.kind == "completed":
            self._write(None, "completed", {"step": step})

    def _write(self, t: float | None, kind: str, fields: dict[str, Any]) -> None:
        """Write an event made from a line, unless it was written already."""
        self._count += 1
        if self._count <= self._state.count:
            return
        now = self._clock()
        # The log's own clock may be of another zone, or jump: it is asked only for what is past.
        sound = t is not None and 0 < t < now + _CLOCK_SLACK_S and not self._live
        self._log.append(t if sound and t else now, kind, {"n": self._count, **fields})

    def _measure_pace(self) -> None:
        """How long a step takes, if the log doesn't report it: between readings that brought steps.

        A log that is written in blocks brings many at once, and each reading counts once.
        """
        if self._newest is None or self._has_pace or not self._live:
            return
        now, (step, segment) = self._clock(), self._newest
        before = self._paced
        if before is not None and step == before[1]:
            return
        self._paced = (now, step)
        if before is None or step < before[1] or now <= before[0]:
            return
        values = {"step_time_s": (now - before[0]) / (step - before[1])}
        self._log.append(now, "metric", {"step": step, "values": values, "segment": segment})


class _EventState:
    """The events written already. `count`: of those made from lines, `reported`: from a program's
    reports."""

    def __init__(self, attempt: AttemptFolder) -> None:
        self.last_seq = -1
        self.count = self.reported = 0
        self.target_step: int | None = None
        self._newest_t: float | None = None
        for line in LineReader(attempt.events).read():
            try:
                event = decode(line)
            except ProtocolError:
                continue  # torn by a kill: it is written again
            self.last_seq, fields = event.seq, event.fields
            self._newest_t = event.t
            self.count = max(self.count, fields.integer("n", 0))
            self.reported = max(self.reported, fields.integer("r", 0))
            target_step = fields.find_integer("target_step")
            self.target_step = self.target_step if target_step is None else target_step

    def newest_t(self) -> float:
        """The time of the newest event; now, where there is none."""
        return time.time() if self._newest_t is None else self._newest_t


def _evaluated(values: dict[str, float]) -> frozenset[str]:
    """The keys that an evaluation reported; none if it had no validation loss."""
    if not any(_is(key, "val_loss") for key in values):
        return frozenset()
    return frozenset(key for key in values if key.startswith("val_") or key == "train_loss_eval")


def _is(key: str, name: str) -> bool:
    return key == name or key.startswith(f"{name}/")


def tail(path: Path, size_bytes: int) -> Iterable[bytes]:
    """The last bytes of a file, in pieces."""
    with path.open("rb") as file:
        file.seek(max(0, file.seek(0, os.SEEK_END) - size_bytes))
        while data := file.read(_CHUNK_BYTES):
            yield data
