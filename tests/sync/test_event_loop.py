"""A call starts without an event loop, and has one from where it needs it."""

from __future__ import annotations

import asyncio
import contextvars
import subprocess
import sys

import pytest

from trainmaster.sync.event_loop import loop_needed, run_with_loop

_NAME = contextvars.ContextVar("_NAME", default="none")
_WITHOUT = """
import sys
from trainmaster.sync.event_loop import run_with_loop
async def call():
    return 7
assert run_with_loop(call()) == 7
assert "asyncio" not in sys.modules
"""


def test_a_call_that_awaits_nothing_imports_no_asyncio() -> None:
    subprocess.run([sys.executable, "-c", _WITHOUT], check=True, timeout=120)


def test_a_call_continues_in_a_loop_with_its_own_context() -> None:
    async def inner() -> str:
        token = _NAME.set("set before")
        await loop_needed()
        async with asyncio.timeout(60):
            await asyncio.gather(asyncio.sleep(0), loop_needed())
        found = _NAME.get()
        _NAME.reset(token)
        return found

    async def call() -> tuple[str, str]:
        return await inner(), _NAME.get()

    assert run_with_loop(call()) == ("set before", "none")


@pytest.mark.parametrize("with_loop", [False, True])
def test_an_error_of_a_call_is_raised_and_what_it_opened_is_closed(with_loop: bool) -> None:
    closed = []

    async def call() -> None:
        try:
            if with_loop:
                await loop_needed()
                await asyncio.sleep(0)
            raise OSError("full")
        finally:
            closed.append(True)

    with pytest.raises(OSError, match="full"):
        run_with_loop(call())
    assert closed == [True]


def test_a_loop_that_runs_is_the_one_that_is_used() -> None:
    async def call() -> bool:
        before = asyncio.get_running_loop()
        await loop_needed()
        return asyncio.get_running_loop() is before

    assert asyncio.run(call())
