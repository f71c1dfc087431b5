"""Extract the frames and the readable lines from the events of a kernel's log."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence

from trainer_runtime.core.kaggle.log_frames import PREFIX, Frame, decode_frame

_MOST_WORDS = 6
_LONGEST_LINE = 1 << 20


class LogLines:
    """Joins events into lines: an event can be a part of a line, or contain several.

    `safe_index`: all events before it were returned, so another reader can begin there. `words`:
    the last lines that are not frames.
    """

    def __init__(self, index: int) -> None:
        self.index = self.safe_index = index
        self.words: deque[str] = deque(maxlen=_MOST_WORDS)
        self._partial: dict[str, str] = {}

    def frames(self, events: Sequence[tuple[str, str]], next_index: int) -> Iterator[Frame]:
        """The frames that are complete now; `next_index`: after the last event."""
        first = next_index - len(events)
        if first != self.index:  # the log was replaced
            self._partial.clear()
        for index, (stream, data) in enumerate(events, start=first + 1):
            for line in self._whole_lines(stream, data):
                if line.startswith(PREFIX):
                    frame = decode_frame(line)
                    if frame is not None:
                        yield frame
                elif line.strip():
                    self.words.append(line[:400])
            self.index = index
            if not any(self._partial.values()):
                self.safe_index = index
        self.index = next_index

    def _whole_lines(self, stream: str, data: str) -> list[str]:
        *lines, rest = (self._partial.get(stream, "") + data).split("\n")
        self._partial[stream] = rest if len(rest) <= _LONGEST_LINE else ""
        return [line.rstrip("\r") for line in lines]
