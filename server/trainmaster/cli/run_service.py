"""The way from a command to a service and back."""

from __future__ import annotations

import os
import sys
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any, TypeVar

from trainmaster.cli.spinner import spinner
from trainmaster.errors.errors import StorageError

if TYPE_CHECKING:
    from trainmaster.sync.workspace import Workspace

Answered = TypeVar("Answered")


def ask(
    call: Callable[[Workspace], Awaitable[Answered]],
    *,
    shows_progress: bool = False,
    replays: bool = True,
    whole: bool = False,
    ends: bool = False,
) -> Answered:
    """What `call` gives, awaited in the opened workspace of `TRAINMASTER_HOME`.

    A spinner shows on the terminal when the call takes long, unless it `shows_progress` itself.
    `replays`: a metrics database that is new is rebuilt from the mirror first: to its end where
    the call acts by it or, `whole`, waits for what it reports; else for a moment, then in the
    background. `ends`: it is to be done on a full disk too, and may be done twice. Where the
    metrics database turns out to be damaged, what only reads, or `ends`, is called again: by then
    it is set aside.

    Raises: TrainmasterError, whatever the service raises.
    """

    from trainmaster.store.action_log import is_acting, record_answer

    async def within() -> Answered:
        from trainmaster.sync.workspace import open_workspace

        if ends:
            from trainmaster.home.paths import find_home
            from trainmaster.store.reserve import give_up_reserve

            give_up_reserve(find_home(os.environ))
        with open_workspace(os.environ) as workspace:
            if replays and workspace.unwritable is None and workspace.metrics.replay_due:
                _rebuild(workspace, whole=whole or is_acting())
            try:
                return await call(workspace)
            finally:
                await workspace.disconnect()

    with nullcontext() if shows_progress else spinner():
        try:
            answer = _run(within())
        except StorageError as error:
            if error.code != "DATABASE_DAMAGED" or (is_acting() and not ends):
                raise
            answer = _run(within())
    record_answer(answer)
    return answer


def _run(call: Coroutine[Any, Any, Answered]) -> Answered:
    import asyncio
    import logging

    # It warns of each write to a broken connection; the consequence is raised as an error.
    logging.getLogger("asyncio").setLevel(logging.ERROR)
    return asyncio.run(call)


def _rebuild(workspace: Workspace, *, whole: bool) -> None:
    from trainmaster.sync.rebuild import rebuild, rebuild_behind
    from trainmaster.sync.rebuild_state import being_rebuilt

    rebuild_behind(workspace)
    if whole and workspace.metrics.replay_due:
        print(f"{being_rebuilt(workspace.home)}; this waits for its end.", file=sys.stderr)
        rebuild(workspace)
