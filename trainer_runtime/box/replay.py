"""What a run's files tell from their beginning: how a supervisor knows what went before it."""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Mapping

from trainer_runtime.box.files import LineReader
from trainer_runtime.core.protocol import Event, ProtocolError, decode

JOURNAL = 0


def replayed(
    journal: LineReader, attempts: Mapping[int, LineReader]
) -> Iterator[tuple[int, Event]]:
    """Every event with its attempt's number, `JOURNAL` for the journal's own, by time.

    The readers stand where they end afterwards. Each file's own order stays, whatever the clock
    did meanwhile.
    """
    streams = [_events(JOURNAL, journal)]
    streams += [_events(number, attempts[number]) for number in sorted(attempts)]
    return heapq.merge(*streams, key=_time)


def _events(number: int, reader: LineReader) -> Iterator[tuple[int, Event]]:
    for line in reader.stream():
        try:
            yield number, decode(line)
        except ProtocolError:
            continue  # a line torn by a kill


def _time(told: tuple[int, Event]) -> float:
    return float(told[1]["t"])
