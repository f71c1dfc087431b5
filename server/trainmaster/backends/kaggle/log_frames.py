"""From the events of a kernel's log to the frames in it, and to what it says for people."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence

from trainer_runtime.core.kaggle.log_frames import PREFIX, Frame, decode_frame

_MOST_WORDS = 6
_LONGEST_LINE = 1 << 20


class LogLines:
    """Events are parts of lines: one line may come in several, several in one.

    `safe_index`: up to which event everything was given out, so that another reader may begin
    there. `words`: what the log said last besides frames.
    """

    def __init__(self, index: int) -> None:
        self.index = self.safe_index = index
        self.words: deque[str] = deque(maxlen=_MOST_WORDS)
        self._partial: dict[str, str] = {}

    def frames(self, events: Sequence[tuple[str, str]], next_index: int) -> Iterator[Frame]:
        """The frames that are whole by now; `next_index` is that behind the last event."""
        first = next_index - len(events)
        if first != self.index:  # the log is another one from here on
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
