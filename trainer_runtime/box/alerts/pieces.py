"""Reads the events that alerts are evaluated on: the journal's and the attempts', in order."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from pathlib import Path

from trainer_runtime.box.files.layout import RunFolder
from trainer_runtime.core.protocol.lines import Event, ProtocolError, complete_lines, decode

# Maximum per read and file: catching up with a long history takes several reads.
_MOST_BYTES = 2 << 20
_KINDS = (b'"kind":"warning"',)


class Pieces:
    """The events of a run from its beginning, each once.

    `keys`: the metrics that are watched; metric lines without any of them are skipped.
    """

    def __init__(self, run: RunFolder, keys: Collection[str]) -> None:
        self._run = run
        self._journal = _Tail(run.journal)
        self._attempts: dict[int, _Tail] = {}
        self._wanted = (*_KINDS, *(f'"{key}":'.encode() for key in keys))

    def new(self, attempts: Collection[int]) -> Iterator[tuple[int, Event]]:
        """New events since the last call; (0, event) for the journal's."""
        for line in self._journal.read():
            yield from _event(0, line)
        for number in sorted(attempts):
            if number not in self._attempts:
                self._attempts[number] = _Tail(self._run.attempt(number).events)
            for line in self._attempts[number].read():
                if any(word in line for word in self._wanted):
                    yield from _event(number, line)
            if self._attempts[number].more:
                return  # an attempt is read to its end before the next one

    @property
    def more(self) -> bool:
        """Whether the last read left anything unread."""
        return self._journal.more or any(tail.more for tail in self._attempts.values())


class _Tail:
    def __init__(self, path: Path) -> None:
        self._path = path
        self._offset = 0
        self.more = False

    def read(self) -> list[bytes]:
        try:
            with self._path.open("rb") as file:
                file.seek(self._offset)
                data = file.read(_MOST_BYTES)
        except FileNotFoundError:
            return []
        self.more = len(data) == _MOST_BYTES
        lines, used = complete_lines(data)
        # A longer line is not one of our events.
        self._offset += used or (len(data) if self.more else 0)
        return lines


def _event(attempt: int, line: bytes) -> Iterator[tuple[int, Event]]:
    try:
        yield attempt, decode(line)
    except ProtocolError:
        return  # torn by a kill
