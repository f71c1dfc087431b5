"""The way from a command to a service and back."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Awaitable, Callable
from contextlib import nullcontext
from typing import TYPE_CHECKING, TypeVar

from trainmaster.cli.spinner import telling_to_wait

if TYPE_CHECKING:
    from trainmaster.sync.workspace import Workspace

Answered = TypeVar("Answered")


def ask(
    call: Callable[[Workspace], Awaitable[Answered]], *, tells_itself: bool = False
) -> Answered:
    """What `call` gives, awaited in the opened workspace of `TRAINMASTER_HOME`.

    Whoever watches is told where it takes long, but by a call that `tells_itself` how it goes.

    Raises: TrainmasterError, whatever the service raises.
    """

    # It warns of each write to a connection that broke; what came of that is told as an error.
    logging.getLogger("asyncio").setLevel(logging.ERROR)

    async def within() -> Answered:
        from trainmaster.sync.workspace import open_workspace

        with open_workspace(os.environ) as workspace:
            if workspace.metrics.replay_due:
                from trainmaster.sync.rebuild import replay_if_new

                replay_if_new(workspace)
            try:
                return await call(workspace)
            finally:
                await workspace.disconnect()

    with nullcontext() if tells_itself else telling_to_wait():
        answer = asyncio.run(within())
    from trainmaster.store.action_log import record_answer

    record_answer(answer)
    return answer
