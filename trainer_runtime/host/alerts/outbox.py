"""Sends the host's own alerts, whether or not a client is connected.

`.alerts.json` says what to watch for and where to post it. The client replaces it, and it is read
again when it changes. Everything else is in the journal: a message is recorded as `fired` before it
is posted, and as `sent` only after the receiver has accepted it. A kill at any moment therefore
leads to the same message once more, under the same id.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from trainer_runtime.core.alerts.alert import Alert, Onset
from trainer_runtime.core.alerts.destination_kinds import KINDS, KindName
from trainer_runtime.core.alerts.message import Place, message_of
from trainer_runtime.core.alerts.post_answer import LONGEST_S, PostAnswer
from trainer_runtime.core.alerts.watcher import Watcher
from trainer_runtime.core.decoding import DecodingError, Fields, JsonRecord, decode_fields
from trainer_runtime.core.files.regular import open_regular
from trainer_runtime.core.protocol.alert_record import failed, fired, sent
from trainer_runtime.core.protocol.journal import Record
from trainer_runtime.core.protocol.lines import Event, ProtocolError, complete_lines, decode, number
from trainer_runtime.core.protocol.progress import Progress
from trainer_runtime.host.files.compacted import read_at
from trainer_runtime.host.files.configs import config_of
from trainer_runtime.host.files.files import read_fields
from trainer_runtime.host.files.layout import RunFolder

# Maximum per read and file: catching up with a long history takes several reads.
_MOST_BYTES = 2 << 20
_KINDS = (b'"kind":"warning"',)
# After the run's end the host retries for this long; the client continues from there.
_LAST_TRIES_S = 300.0
# Receivers take about one message a second; Slack says so, Discord thirty a minute.
_LEAST_PAUSE_S = 2.0
_KILL_AFTER_S = LONGEST_S + 10.0

# Writes an event of the journal: its kind and its fields.
Emit = Callable[[str, Mapping[str, object]], None]


class Alerting:
    """One run's alerts. `poll` never waits: a message is posted by a child, one at a time."""

    def __init__(
        self,
        run: RunFolder,
        clock: Callable[[], float],
        emit: Emit,
        memory: Mapping[str, Any] | None = None,
    ) -> None:
        """`memory`: what `to_dict` returned; the history before it is not read again."""
        self._run = run
        self._memory = memory or {}
        self._clock = clock
        self._emit = emit
        self._seen: tuple[int, int, int] | None = None
        self._order = AlertOrder()
        self._watchers: list[Watcher] = []
        self._pieces: Pieces | None = None
        self._child: subprocess.Popen[bytes] | None = None
        self._posting = ""
        self._is_attached = config_of(run).is_attached
        self._started_t = 0.0
        self._next_t = 0.0

    def poll(self, record: Record, progress: Mapping[int, Progress], *, last: bool = False) -> bool:
        """Fire the alerts that are due and post those that fired; True when nothing is left to do.

        `last`: the run has ended, so retries are limited.
        """
        now = self._clock()
        try:
            self._read_changed_order()
            if self._pieces is not None:
                for alert, onset in self._onsets(self._pieces, record, progress, now):
                    self._fire(alert, onset, record, progress, now)
        except OSError:
            self._seen = None  # what was read but not recorded is read again
            raise
        if self._child is not None:
            self._check_child(self._child, record, now)
        if self._child is None and now >= self._next_t:
            self._post_next(record, now)
        tries_s = self._order.last_tries_s
        if last and now > (record.state_t or now) + (_LAST_TRIES_S if tries_s is None else tries_s):
            self._give_up(record, now)
        return not record.alerts.unsent and not (self._pieces and self._pieces.more)

    def to_dict(self) -> dict[str, Any]:
        """What was evaluated so far, as JSON values: of which order, and up to where."""
        if self._pieces is None:
            return {}
        return {
            "seen": self._seen,
            "watchers": [watcher.to_dict() for watcher in self._watchers],
            "offsets": self._pieces.offsets,
        }

    def forget(self, record: Record) -> None:
        """Remove the addresses of an ended run, unless they belong to a newer request."""
        order = _read_order(self._run)
        if order is None or order.generation <= record.generation:
            self._run.alerts.unlink(missing_ok=True)

    def close(self) -> None:
        """Detach from a message under way; its process ends by itself."""
        self._child = None

    def _read_changed_order(self) -> None:
        """Read the alert order if it has changed; the history is then read again from its start,
        or from where this very order was evaluated to."""
        try:
            status = os.stat(self._run.alerts)
        except FileNotFoundError:
            return
        seen = (status.st_ino, status.st_size, status.st_mtime_ns)
        if seen == self._seen:
            return
        self._seen = seen
        self._order = _read_order(self._run) or AlertOrder()
        memory, self._memory = self._memory, {}
        if memory.get("seen") != list(seen) or len(memory["watchers"]) != len(self._order.alerts):
            memory = {}
        kept = memory.get("watchers") or [None] * len(self._order.alerts)
        self._watchers = [
            Watcher(alert, state) for alert, state in zip(self._order.alerts, kept, strict=True)
        ]
        keys = {watcher.key for watcher in self._watchers if watcher.key is not None}
        pieces = Pieces(self._run, keys, memory.get("offsets"))
        self._pieces = pieces if self._watchers else None

    def _onsets(
        self, pieces: Pieces, record: Record, progress: Mapping[int, Progress], now: float
    ) -> Iterator[tuple[Alert, Onset]]:
        for attempt, event in pieces.new([item.number for item in record.attempts]):
            for watcher in self._watchers:
                if (onset := _onset_of(watcher, attempt, event)) is not None:
                    yield watcher.alert, onset
        newest = record.current.number if record.current else 0
        heard_t = _heard_t(record, progress.get(newest), self._log_grew_t(newest))
        step = progress[newest].step if newest in progress else 0
        for watcher in self._watchers:
            state = record.state.value
            onset = watcher.check_elapsed(
                now, state=state, attempt=newest, heard_t=heard_t, step=step
            )
            if onset is not None:
                yield watcher.alert, onset

    def _log_grew_t(self, attempt: int) -> float | None:
        """When an attached training's log last grew: its lines may hold no metrics."""
        if not self._is_attached:
            return None
        try:
            return self._run.attempt(attempt).train_log.stat().st_mtime
        except OSError:
            return None

    def _fire(
        self,
        alert: Alert,
        onset: Onset,
        record: Record,
        progress: Mapping[int, Progress],
        now: float,
    ) -> None:
        newest = record.current.number if record.current else 0
        place = Place(
            run_id=self._run.run_id,
            host=self._order.host,
            placement=self._order.placement,
            state=record.state.value,
            step=progress[newest].step if newest in progress else 0,
        )
        message = message_of(alert, onset, place, now)
        if not record.alerts.knows(message, onset.t):
            self._emit("alert", fired(message, alert.to))

    def _post_next(self, record: Record, now: float) -> None:
        due = record.alerts.due(now)
        if due is None:
            return
        name, delivery = due
        destination = self._order.destinations.get(delivery.to)
        if destination is None:
            # Its address may come with the next file; the caller decides when to give up.
            reason = f"the host has no address of {delivery.to}"
            self._emit("alert", failed(name, delivery, reason, now))
            return
        body = KINDS[destination.kind].body(delivery.message)
        asked = json.dumps({"url": destination.url, "body": body, "id": name}).encode()
        try:
            self._child = subprocess.Popen(
                [sys.executable, "-m", "trainer_runtime", "alert"],
                cwd=self._run.root,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
        except OSError:
            # Whatever is wrong with the machine, the training matters more than its alerts.
            self._emit("alert", failed(name, delivery, "the sender can't be started", now))
            return
        self._posting, self._started_t = name, now
        if self._child.stdin is not None:
            with suppress(BrokenPipeError), self._child.stdin as stdin:
                stdin.write(asked)  # shorter than a pipe holds

    def _check_child(self, child: subprocess.Popen[bytes], record: Record, now: float) -> None:
        if child.poll() is None:
            if now > self._started_t + _KILL_AFTER_S:
                child.kill()
            return
        output = child.stdout.read() if child.stdout is not None else b""
        self._child, self._next_t = None, now + _LEAST_PAUSE_S
        if child.stdout is not None:
            child.stdout.close()
        delivery = record.alerts.deliveries.get(self._posting)
        if delivery is None:
            return
        answer = _answer(output)
        if answer.sent:
            self._emit("alert", sent(self._posting))
        else:
            reason, wait_s = answer.reason, answer.wait_s
            self._emit("alert", failed(self._posting, delivery, reason, now, wait_s=wait_s))

    def _give_up(self, record: Record, now: float) -> None:
        for name in record.alerts.unsent:
            delivery = record.alerts.deliveries[name]
            reason = delivery.reason or "the receiver did not accept it in time"
            self._emit("alert", failed(name, delivery, reason, now, last=True))


def _read_order(run: RunFolder) -> AlertOrder | None:
    """The alert order; None if there is none or it can't be read."""
    fields = read_fields(run.alerts)
    try:
        return None if fields is None else AlertOrder.of(fields)
    except DecodingError:
        return None


def _onset_of(watcher: Watcher, attempt: int, event: Event) -> Onset | None:
    if watcher.key is None:
        return watcher.event(attempt, event)
    value = number(event.values.get(watcher.key))
    if value is None:
        return None
    x = (event.step or 0) if attempt else round(event.t * 1000)
    return watcher.point(attempt, x, event.t, value)


def _heard_t(
    record: Record, progress: Progress | None, grew_t: float | None = None
) -> float | None:
    """When the newest trainer last reported anything, its start included; `grew_t`: its log's."""
    event_t = progress.last_event_t if progress is not None else None
    running_t = record.current.running_t if record.current is not None else None
    return max((t for t in (event_t, running_t, grew_t) if t is not None), default=None)


def _answer(output: bytes) -> PostAnswer:
    try:
        return PostAnswer.of(decode_fields(output, "the sender's answer"))
    except DecodingError:
        return PostAnswer(sent=False, reason="the sender was ended")


class Pieces:
    """The events of a run from its beginning, each once.

    `keys`: the metrics that are watched; metric lines without any of them are skipped. `offsets`:
    how many bytes of the journal ("0") and of attempts' events were read before.
    """

    def __init__(
        self, run: RunFolder, keys: Collection[str], offsets: Mapping[str, int] | None = None
    ) -> None:
        self._run = run
        self._begin = {int(number): offset for number, offset in (offsets or {}).items()}
        self._journal = _Tail(run.journal, self._begin.get(0, 0))
        self._attempts: dict[int, _Tail] = {}
        self._wanted = (*_KINDS, *(f'"{key}":'.encode() for key in keys))

    def new(self, attempts: Collection[int]) -> Iterator[tuple[int, Event]]:
        """New events since the last call; (0, event) for the journal's."""
        for line in self._journal.read():
            yield from _event(0, line)
        for attempt in sorted(attempts):
            if attempt not in self._attempts:
                begin = self._begin.get(attempt, 0)
                self._attempts[attempt] = _Tail(self._run.attempt(attempt).events, begin)
            for line in self._attempts[attempt].read():
                if any(word in line for word in self._wanted):
                    yield from _event(attempt, line)
            if self._attempts[attempt].more:
                return  # an attempt is read to its end before the next one

    @property
    def offsets(self) -> dict[str, int]:
        """How many bytes of each file were read so far, for `__init__`."""
        tails = {0: self._journal, **self._attempts}
        return {str(number): tail.offset for number, tail in tails.items()}

    @property
    def more(self) -> bool:
        """Whether the last read left anything unread."""
        return self._journal.more or any(tail.more for tail in self._attempts.values())


class _Tail:
    def __init__(self, path: Path, offset: int) -> None:
        self._path = path
        self.offset = offset
        self.more = False

    def read(self) -> list[bytes]:
        try:
            with open_regular(self._path) as file:
                data = read_at(file.fileno(), str(self._path), self.offset, _MOST_BYTES)
        except FileNotFoundError:
            return []
        self.more = len(data) == _MOST_BYTES
        lines, used = complete_lines(data)
        # A longer line is not one of our events.
        self.offset += used or (len(data) if self.more else 0)
        return lines


def _event(attempt: int, line: bytes) -> Iterator[tuple[int, Event]]:
    try:
        yield attempt, decode(line)
    except ProtocolError:
        return  # torn by a kill


@dataclass(frozen=True, slots=True)
class Destination(JsonRecord):
    kind: KindName
    url: str


def _alerts(fields: Fields) -> tuple[Alert, ...]:
    alerts = []
    for item in fields.sections("alerts"):
        with suppress(ValueError):
            alerts.append(Alert.of(item))
    return tuple(alerts)


def _destinations(fields: Fields) -> dict[str, Destination]:
    section = fields.section("destinations")
    destinations = {}
    for name in section.values:
        with suppress(ValueError):
            destinations[name] = Destination.of(section.section(name))
    return destinations


@dataclass(frozen=True, slots=True)
class AlertOrder(JsonRecord):
    """Written by the client. `host` is what it calls the host. Alerts and destinations that a newer
    version may know are left out.

    `last_tries_s`: how long the host keeps trying after the run's end, None: its own default.
    """

    alerts: tuple[Alert, ...] = field(default=(), metadata={"read": _alerts})
    destinations: Mapping[str, Destination] = field(
        default_factory=dict, metadata={"read": _destinations}
    )
    host: str = ""
    placement: int = 1
    generation: int = 0
    last_tries_s: float | None = None
