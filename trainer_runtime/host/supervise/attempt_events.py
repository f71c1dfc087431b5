"""Folds each attempt's `events.jsonl` as it grows."""

from __future__ import annotations

from collections.abc import Callable

from trainer_runtime.core.protocol.lines import Event, ProtocolError, decode
from trainer_runtime.core.protocol.progress import Progress
from trainer_runtime.host.files.files import LineReader
from trainer_runtime.host.files.layout import RunFolder


class AttemptEvents:
    """`progress` and `readers` by attempt. `feed` gets each event once it is folded."""

    def __init__(self, run: RunFolder, feed: Callable[[int, Event], None]) -> None:
        self._run = run
        self._feed = feed
        self.progress: dict[int, Progress] = {}
        self.readers: dict[int, LineReader] = {}

    def follow(self, number: int, started_at_step: int | None = None) -> None:
        """Add an attempt, though it may have reported nothing yet."""
        if number not in self.progress:
            self.follow_from(Progress(number, started_at_step), 0)

    def follow_from(self, progress: Progress, offset: int) -> None:
        """Add an attempt whose events up to the byte `offset` made its `progress`."""
        number = progress.attempt
        self.progress[number] = progress
        self.readers[number] = LineReader(self._run.attempt(number).events, offset)

    def read(self, number: int) -> None:
        """Take in what is new of an attempt."""
        self.follow(number)
        for line in self.readers[number].read():
            try:
                event = decode(line)
            except ProtocolError:
                continue  # a line torn by a kill; the mirror keeps it as it is
            self.take(number, event)

    def take(self, number: int, event: Event) -> None:
        """Fold one event of an attempt that is followed, and hand it on."""
        self.progress[number].apply(event)
        self._feed(number, event)
