"""A kernel's log from its stream, which breaks every few minutes and restarts at the beginning.

Events are identified by their index. Repeated events must equal the earlier ones; if one differs,
the log counts as a new log, and is returned from there.
"""

from __future__ import annotations

import threading
import zlib
from array import array
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from trainmaster.backends.kaggle.client import LogPage

Read = Callable[[], Iterator[Mapping[str, Any]]]

# Unfetched events; the reader pauses at this size.
_MOST_KEPT = 20_000
_LARGEST_PAGE_BYTES = 2 << 20
_TRIES = 3
_LONGEST_PAUSE_S = 15.0


class LogStream:
    """Reads the stream in a thread, and returns it in pages, without the first `after` events.

    `read` opens the stream; `is_over` asks whether the session has ended, since a broken stream
    ends in the same way. `pause_s`: before the first retry after an empty read.
    """

    def __init__(
        self, read: Read, is_over: Callable[[], bool], after: int, *, pause_s: float = 0.5
    ) -> None:
        self._read, self._is_over, self._pause_s = read, is_over, pause_s
        self._unseen = after
        self._base = after
        self._kept: deque[tuple[str, str]] = deque()
        self._marks = array("L")
        self._again: int | None = None
        self._returned: int | None = None
        self._ended = False
        self._closed = False
        self._failure: Exception | None = None
        self._changed = threading.Condition()
        threading.Thread(target=self._follow, daemon=True).start()

    def serves(self, after: int) -> bool:
        """False if only a new stream has the events after an index."""
        with self._changed:
            restarts = after == 0 and self._ended and self._returned is not None
            holds_place = self._again is not None or self._base <= after <= self._end
            return holds_place and not restarts and not self._closed

    def page(self, after: int, wait_s: float) -> LogPage:
        """The events after `after`, once there are any; earlier ones may be dropped.

        Raises:
            LookupError: the events were dropped, since another reader was further.
            Exception: why the stream could not be read; no events are left.
        """
        with self._changed:
            if self._again is not None and after == self._returned:
                self._again = None
            self._forget(self._first(after))
            self._changed.wait_for(lambda: self._end > self._first(after) or self._is_done, wait_s)
            first = self._first(after)
            if first < self._base:
                raise LookupError(first)
            if self._failure is not None and self._end <= first:
                self._closed = True
                raise self._failure
            events = self._page(first)
            self._returned = first + len(events)
            return LogPage(events, self._returned, self._ended and self._returned == self._end)

    def close(self) -> None:
        """Stop reading; the thread ends with the next event."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    @property
    def _end(self) -> int:
        return self._base + len(self._kept)

    @property
    def _is_done(self) -> bool:
        return self._ended or self._closed or self._failure is not None

    def _first(self, after: int) -> int:
        """The index where a reader that has the events before `after` continues."""
        return after if self._again is None else self._again

    def _page(self, first: int) -> list[tuple[str, str]]:
        events: list[tuple[str, str]] = []
        size = 0
        for index in range(first - self._base, len(self._kept)):
            event = self._kept[index]
            size += len(event[1])
            if events and size > _LARGEST_PAGE_BYTES:
                break
            events.append(event)
        return events

    def _forget(self, before: int) -> None:
        while self._base < before and self._kept:
            self._kept.popleft()
            self._base += 1
        self._changed.notify_all()

    def _follow(self) -> None:
        tries = 0
        while not self._closed:
            marks_before = len(self._marks)
            problem: Exception | None = None
            over, count = False, 0
            try:
                over = self._is_over()  # asked first: what is read afterwards is complete
                count = self._read_through()
            except Exception as error:
                over, problem = False, error
            is_whole = over and count >= self._unseen + marks_before
            tries = 0 if len(self._marks) > marks_before else tries + 1
            with self._changed:
                if self._closed:
                    return
                if is_whole or (over and tries > _TRIES):
                    self._ended = True
                elif problem is not None and tries > _TRIES:
                    self._failure = problem
                self._changed.notify_all()
                if self._is_done:
                    return
                if tries:
                    pause_s = min(_LONGEST_PAUSE_S, self._pause_s * 2 ** min(tries - 1, 8))
                    self._changed.wait_for(lambda: self._closed, pause_s)

    def _read_through(self) -> int:
        count = 0
        for event in self._read():
            self._take(count, event)
            count += 1
            if self._closed:
                break
        return count

    def _take(self, index: int, event: Mapping[str, Any]) -> None:
        place = index - self._unseen
        if place < 0:
            return
        stream, data = str(event.get("stream_name") or "stdout"), event.get("data")
        text = data if isinstance(data, str) else ""
        mark = zlib.crc32(text.encode(errors="replace"))
        if place < len(self._marks):
            if self._marks[place] == mark:
                return
            self._begin_again(place)
        with self._changed:
            self._changed.wait_for(lambda: len(self._kept) < _MOST_KEPT or self._closed)
            self._marks.append(mark)
            self._kept.append((stream, text))
            self._changed.notify_all()

    def _begin_again(self, place: int) -> None:
        """Begin a new log at `place`."""
        with self._changed:
            del self._marks[place:]
            index = self._unseen + place
            while self._kept and self._end > index:
                self._kept.pop()
            self._base = min(self._base, index)
            self._again = index if self._again is None else min(self._again, index)
            self._returned = None
