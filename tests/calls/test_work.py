"""The work of a call ends with it, by the time and by the bytes, in threads as well."""

from __future__ import annotations

import asyncio
import threading

import pytest

from trainmaster.calls.shares import Shares
from trainmaster.calls.work import Work, spend, working
from trainmaster.calls.work_thread import in_thread
from trainmaster.errors.errors import StateError

_BOUND_S = 60.0


def _read_on(begun: threading.Event, ended: list[str]) -> None:
    """Read without an end."""
    try:
        while True:
            spend(1)
            begun.set()
    except StateError as error:
        ended.append(error.code)


def _until_no_thread_reads() -> None:
    for one in threading.enumerate():
        if one.name == "trainmaster-read":
            one.join(_BOUND_S)
            assert not one.is_alive()


@pytest.mark.parametrize("limits", [{"within_s": 0.0}, {"most_bytes": 10}])
def test_work_ends_by_its_time_and_by_its_bytes(limits: dict[str, float]) -> None:
    with working(Work(**limits)), pytest.raises(StateError) as error:  # type: ignore[arg-type]
        spend(11)
    assert error.value.code == "READ_TOO_LONG"


def test_without_a_call_nothing_is_limited() -> None:
    spend(1 << 60)
    with working(Work()):
        spend(1 << 60)


def test_a_thread_ends_with_the_call_that_awaited_it() -> None:
    begun, ended = threading.Event(), list[str]()

    async def cancelled() -> None:
        reading = asyncio.create_task(in_thread(_read_on, begun, ended))
        await asyncio.to_thread(begun.wait, _BOUND_S)
        reading.cancel()
        await asyncio.wait([reading])

    asyncio.run(cancelled())
    _until_no_thread_reads()
    assert ended == ["READ_TOO_LONG"]


def test_a_share_is_taken_until_its_thread_has_ended() -> None:
    shares, begun, release = Shares(of_caller=1), threading.Event(), threading.Event()

    def wait_in_the_kernel() -> None:
        begun.set()
        release.wait(_BOUND_S)

    async def scenario() -> None:
        with working(Work("ann", shares=shares)):
            first = asyncio.create_task(in_thread(wait_in_the_kernel))
            await asyncio.to_thread(begun.wait, _BOUND_S)
            first.cancel()
            second = asyncio.create_task(in_thread(str))
            await asyncio.wait([first, second], timeout=0.1)
            assert first.cancelled() and not second.done()
            release.set()
            assert await second == ""

    asyncio.run(scenario())


def test_a_caller_with_many_reads_holds_up_no_other() -> None:
    async def scenario() -> list[str]:
        shares, order = Shares(of_caller=2, of_all=3), list[str]()

        async def read(caller: str) -> None:
            async with shares.taken(caller):
                order.append(caller)
                for _ in range(3):
                    await asyncio.sleep(0)

        await asyncio.gather(*map(read, [*["ann"] * 10, "bob", "eve"]))
        return order

    order = asyncio.run(scenario())
    assert order[:4] == ["ann", "ann", "bob", "eve"] and len(order) == 12


def test_a_call_that_waits_for_its_share_too_long_is_refused() -> None:
    async def scenario() -> None:
        shares = Shares(of_caller=1)
        async with shares.taken("ann"):
            with pytest.raises(StateError) as error:
                await shares.take("ann", 0.01)
            assert error.value.code == "READS_AT_ONCE" and error.value.retryable
        await shares.take("ann", 0.01)  # nothing is left of the one that gave up

    asyncio.run(scenario())


def test_what_a_thread_raises_is_raised_by_its_call() -> None:
    with pytest.raises(ZeroDivisionError):
        asyncio.run(in_thread(divmod, 1, 0))
