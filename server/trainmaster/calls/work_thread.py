"""Work of a call in a thread: other calls are answered meanwhile, and it ends with its call."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import ParamSpec, TypeVar

from trainer_runtime.core.files.reading import checked_by
from trainmaster.calls.work import current_work, working

_Parameters = ParamSpec("_Parameters")
_Returned = TypeVar("_Returned")


async def in_thread(
    function: Callable[_Parameters, _Returned],
    *arguments: _Parameters.args,
    **named: _Parameters.kwargs,
) -> _Returned:
    """What `function` returns, run in a thread once the caller's share has room.

    The share is taken until the thread has ended, also where nobody waits for it any more. The
    thread is a daemon, so that it can't hold up the end of this process.

    Raises:
        StateError: `READS_AT_ONCE`; and whatever `function` raises, `READ_TOO_LONG` as well.
    """
    call = current_work()
    if call.shares is not None:
        await call.shares.take(call.caller, call.left_s())
    loop = asyncio.get_running_loop()
    own = call.part()
    outcome: asyncio.Future[_Returned] = loop.create_future()

    def settle(settled: Callable[[], object]) -> None:
        if call.shares is not None:
            call.shares.give_back(call.caller)
        if not outcome.done():
            settled()

    def run() -> None:
        settled: Callable[[], object]
        with working(own), checked_by(own.spend):
            try:
                settled = partial(outcome.set_result, function(*arguments, **named))
            except BaseException as error:
                settled = partial(outcome.set_exception, error)
        with suppress(RuntimeError):  # the loop has ended, and with it the call
            loop.call_soon_threadsafe(settle, settled)

    within = contextvars.copy_context()
    thread = threading.Thread(target=within.run, args=(run,), name="trainmaster-read", daemon=True)
    try:
        thread.start()
    except RuntimeError:  # no more threads may be started
        settle(outcome.cancel)
        raise
    try:
        return await outcome
    finally:
        own.end()
