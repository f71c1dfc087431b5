"""A log's stream that is cut off, told from the start, and at times another than before."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest

from trainmaster.backends.kaggle.client import LogPage
from trainmaster.backends.kaggle.log_stream import LogStream

_WAIT_S = 30.0


class Told:
    """What each opening of the stream tells; the session is over with the last. `held` is waited
    for at the end of each, of which `at_end` tells."""

    def __init__(self, *openings: list[str] | Exception) -> None:
        self.openings = list(openings)
        self.opened = 0
        self.held: threading.Event | None = None
        self.at_end = threading.Event()

    def stream(self, after: int = 0) -> LogStream:
        return LogStream(self._read, lambda: len(self.openings) == 1, after, pause_s=0.0)

    def _read(self) -> Iterator[dict[str, Any]]:
        self.opened += 1
        told = self.openings[0] if len(self.openings) == 1 else self.openings.pop(0)
        if isinstance(told, Exception):
            raise told
        for data in told:
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


def told(found: list[LogPage]) -> str:
    return "".join(data for page in found for _, data in page.events)


def test_what_is_told_again_is_left_out() -> None:
    stream = Told(list("ab"), list("abc"), list("ab"), list("abcd")).stream()
    assert told(pages(stream)) == "abcd"


def test_a_stream_that_ends_without_a_word_is_not_the_logs_end() -> None:
    source = Told(list("ab"), [], list("abc"))
    assert told(pages(source.stream())) == "abc"
    assert source.opened == 3


def test_from_the_first_event_that_differs_on_the_log_is_told_anew() -> None:
    source = Told(list("abc"), list("axy"), list("axyz"))
    going_on = source.held = threading.Event()
    stream = source.stream()
    assert source.at_end.wait(_WAIT_S)
    assert told([stream.page(0, _WAIT_S)]) == "abc"
    going_on.set()
    found = pages(stream, after=3)
    assert told(found) == "xyz"
    assert found[0].next_index == 1 + len(found[0].events)
    assert found[-1].next_index == 4


def test_an_answer_that_got_lost_is_given_once_more() -> None:
    source = Told(list("ab"), list("abcd"))
    going_on = source.held = threading.Event()
    stream = source.stream()
    assert source.at_end.wait(_WAIT_S)
    assert told([stream.page(0, _WAIT_S)]) == told([stream.page(0, _WAIT_S)]) == "ab"
    going_on.set()
    assert told(pages(stream, after=2)) == "cd"


def test_who_comes_behind_another_reader_is_told_to_open_a_stream_of_his_own() -> None:
    stream = Told(list("abc")).stream()
    pages(stream)
    stream.page(3, 0.0)
    assert not stream.serves(1)
    with pytest.raises(LookupError):
        stream.page(1, _WAIT_S)


def test_the_beginning_is_left_out_for_whoever_has_it() -> None:
    assert told(pages(Told(list("abcdef")).stream(after=4), after=4)) == "ef"


def test_a_log_that_ended_serves_nobody_who_begins_anew() -> None:
    stream = Told(list("ab")).stream()
    assert stream.serves(0)
    pages(stream)
    assert not stream.serves(0)
    assert stream.serves(2)


def test_a_stream_that_can_not_be_read_is_given_up_after_some_tries() -> None:
    source = Told(list("a"), *[ConnectionError("gone")] * 9, list("ab"))
    stream = source.stream()
    assert told([stream.page(0, _WAIT_S)]) == "a"
    with pytest.raises(ConnectionError, match="gone"):
        stream.page(1, _WAIT_S)
    assert not stream.serves(1)
    assert 3 <= source.opened <= 6
