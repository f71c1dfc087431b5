"""A log stream that breaks, restarts at the beginning, and sometimes changes."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest

from trainmaster.backends.kaggle.client import LogPage
from trainmaster.backends.kaggle.log_stream import LogStream

_WAIT_S = 30.0


class ScriptedStream:
    """The events of each opening of the stream; the session ends with the last. The end of each
    sets `at_end` and waits for `held`."""

    def __init__(self, *openings: list[str] | Exception) -> None:
        self.openings = list(openings)
        self.opened = 0
        self.held: threading.Event | None = None
        self.at_end = threading.Event()

    def stream(self, after: int = 0) -> LogStream:
        return LogStream(self._read, lambda: len(self.openings) == 1, after, pause_s=0.0)

    def _read(self) -> Iterator[dict[str, Any]]:
        self.opened += 1
        events = self.openings[0] if len(self.openings) == 1 else self.openings.pop(0)
        if isinstance(events, Exception):
            raise events
        for data in events:
            yield {"stream_name": "stdout", "data": data}
        if self.held is not None:
            self.at_end.set()
            self.held.wait(_WAIT_S)


def pages(stream: LogStream, after: int = 0) -> list[LogPage]:
    """All of them to the end, each asked for behind the one before."""
    found = [stream.page(after, _WAIT_S)]
    while not found[-1].ended:
        found.append(stream.page(found[-1].next_index, _WAIT_S))
    return found


def text_of(found: list[LogPage]) -> str:
    return "".join(data for page in found for _, data in page.events)


def test_repeated_events_are_left_out() -> None:
    stream = ScriptedStream(list("ab"), list("abc"), list("ab"), list("abcd")).stream()
    assert text_of(pages(stream)) == "abcd"


def test_a_stream_that_ends_without_a_word_is_not_the_logs_end() -> None:
    source = ScriptedStream(list("ab"), [], list("abc"))
    assert text_of(pages(source.stream())) == "abc"
    assert source.opened == 3


def test_a_differing_event_starts_a_new_log() -> None:
    source = ScriptedStream(list("abc"), list("axy"), list("axyz"))
    proceed = source.held = threading.Event()
    stream = source.stream()
    assert source.at_end.wait(_WAIT_S)
    assert text_of([stream.page(0, _WAIT_S)]) == "abc"
    proceed.set()
    found = pages(stream, after=3)
    assert text_of(found) == "xyz"
    assert found[0].next_index == 1 + len(found[0].events)
    assert found[-1].next_index == 4


def test_an_answer_that_got_lost_is_given_once_more() -> None:
    source = ScriptedStream(list("ab"), list("abcd"))
    proceed = source.held = threading.Event()
    stream = source.stream()
    assert source.at_end.wait(_WAIT_S)
    assert text_of([stream.page(0, _WAIT_S)]) == text_of([stream.page(0, _WAIT_S)]) == "ab"
    proceed.set()
    assert text_of(pages(stream, after=2)) == "cd"


def test_a_slower_reader_must_open_another_stream() -> None:
    stream = ScriptedStream(list("abc")).stream()
    pages(stream)
    stream.page(3, 0.0)
    assert not stream.serves(1)
    with pytest.raises(LookupError):
        stream.page(1, _WAIT_S)


def test_known_events_are_left_out() -> None:
    assert text_of(pages(ScriptedStream(list("abcdef")).stream(after=4), after=4)) == "ef"


def test_an_ended_log_does_not_serve_a_reader_from_the_start() -> None:
    stream = ScriptedStream(list("ab")).stream()
    assert stream.serves(0)
    pages(stream)
    assert not stream.serves(0)
    assert stream.serves(2)


def test_a_stream_that_can_not_be_read_is_given_up_after_some_tries() -> None:
    source = ScriptedStream(list("a"), *[ConnectionError("gone")] * 9, list("ab"))
    stream = source.stream()
    assert text_of([stream.page(0, _WAIT_S)]) == "a"
    with pytest.raises(ConnectionError, match="gone"):
        stream.page(1, _WAIT_S)
    assert not stream.serves(1)
    assert 3 <= source.opened <= 6
