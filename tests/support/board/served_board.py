"""A board that is served within the test's process, in a thread and workspace of its own."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from trainmaster.board.serve import Board, Listening
from trainmaster.sync.workspace import open_workspace

_BOUND_S = 120.0


@contextmanager
def served_board(home: Path, listening: Listening | None = None) -> Iterator[Board]:
    """The board of a home while it answers."""
    listens, served = threading.Event(), []

    async def serve() -> None:
        with open_workspace({"TRAINMASTER_HOME": str(home)}) as workspace:
            served.append(Board(workspace, listening or Listening()))
            listens.set()
            try:
                await served[0].serve()
            finally:
                await workspace.disconnect()

    thread = threading.Thread(target=lambda: asyncio.run(serve()))
    thread.start()
    try:
        assert listens.wait(_BOUND_S)
        yield served[0]
    finally:
        served[0].end()
        thread.join(_BOUND_S)
