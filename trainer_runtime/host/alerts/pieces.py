"""Reads the events that alerts are evaluated on: the journal's and the attempts', in order."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from pathlib import Path

from trainer_runtime.core.files.regular import open_regular
from trainer_runtime.core.protocol.lines import Event, ProtocolError, complete_lines, decode
from trainer_runtime.host.files.compacted import read_at
from trainer_runtime.host.files.layout import RunFolder

# Maximum per read and file: catching up with a long history takes several reads.
_MOST_BYTES = 2 << 20
_KINDS = (b'"kind":"warning"',)


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
        for number in sorted(attempts):
            if number not in self._attempts:
                begin = self._begin.get(number, 0)
                self._attempts[number] = _Tail(self._run.attempt(number).events, begin)
            for line in self._attempts[number].read():
                if any(word in line for word in self._wanted):
                    yield from _event(number, line)
            if self._attempts[number].more:
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
