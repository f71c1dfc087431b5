"""What pages share: an answer is made once for all who wait, and ends with the last of them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from starlette.requests import Request
from starlette.types import Message

from trainmaster.answers.base import Answer
from trainmaster.board.app import Held, Remembered, while_awaited
from trainmaster.errors.errors import StateError
from trainmaster.sync.workspace import Workspace

_BOUND_S = 30.0


class Reading:
    """Reads for ever, or until `end` is set; counts how often it began and was given up."""

    def __init__(self) -> None:
        self.began = self.given_up = 0
        self.end = asyncio.Event()

    async def __call__(self) -> Answer:
        self.began += 1
        try:
            await self.end.wait()
        except asyncio.CancelledError:
            self.given_up += 1
            raise
        return Answer()


async def _until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(_BOUND_S):
        while not condition():
            await asyncio.sleep(0)


def _page(leaves: asyncio.Event) -> Request:
    """A request whose client closes the connection once `leaves` is set."""

    async def receive() -> Message:
        await leaves.wait()
        return {"type": "http.disconnect"}

    return Request({"type": "http", "method": "GET", "headers": []}, receive)


def _asked(
    remembered: Remembered, question: str, make: Callable[[], Awaitable[Answer]]
) -> tuple[asyncio.Task[Held], asyncio.Event]:
    leaves = asyncio.Event()
    answer = while_awaited(_page(leaves), remembered.answer(question, make))
    return asyncio.create_task(answer), leaves


def test_a_reading_ends_with_the_last_page_that_waits_for_it(workspace: Workspace) -> None:
    async def scenario() -> None:
        remembered, reading = Remembered(workspace), Reading()
        pages = [_asked(remembered, "run", reading) for _ in range(3)]
        await _until(lambda: reading.began == 1)
        for page, leaves in pages:
            assert (reading.began, reading.given_up) == (1, 0)
            leaves.set()
            with pytest.raises(StateError, match="closed"):
                await page
        await _until(lambda: reading.given_up == 1)
        # Nothing of it is left in the way of who asks next, the same or something else.
        for question in ("run", "board"):
            ended, _ = _asked(remembered, question, reading)
            reading.end.set()
            async with asyncio.timeout(_BOUND_S):
                assert (await ended).body == b"{}"

    asyncio.run(scenario())


def test_pages_that_stay_get_the_answer_of_one_reading(workspace: Workspace) -> None:
    async def scenario() -> None:
        remembered, reading = Remembered(workspace), Reading()
        pages = [_asked(remembered, "run", reading) for _ in range(3)]
        await _until(lambda: reading.began == 1)
        pages[0][1].set()
        reading.end.set()
        with pytest.raises(StateError, match="closed"):
            await pages[0][0]
        held = [await page for page, _ in pages[1:]]
        assert held[0] is held[1]
        assert (reading.began, reading.given_up) == (1, 0)

    asyncio.run(scenario())
