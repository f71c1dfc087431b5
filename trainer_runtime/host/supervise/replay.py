"""Replays a run's files, so that a new supervisor knows its history."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

from trainer_runtime.core.protocol.lines import Event, ProtocolError, decode
from trainer_runtime.host.files.files import LineReader

JOURNAL = 0


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
