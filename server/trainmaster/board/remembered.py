"""Answers that many pages share, and that are made no more often than a page can afford."""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Hashable

from trainer_runtime.core.records import dataclass
from trainmaster.answers.base import ON_COMMAND_LINE, Answer
from trainmaster.sync.workspace import Workspace

# An answer is made again after this many times what it took: 5% of a core for each that is shown,
# on however many pages.
_PAUSES = 20.0
_SHORTEST_PAUSE_S = 0.5
# Without news a run is lost by silence, and times to go pass.
_LONGEST_PAUSE_S = 5.0
_MOST = 64


@dataclass(frozen=True, slots=True)
class Held:
    """An answer as JSON; `etag` changes with it. `made_t`, `took_s`: by the monotonic clock."""

    body: bytes
    etag: str
    version: object
    made_t: float
    took_s: float


@dataclass(slots=True)
class _Making:
    """An answer that is being made, and how many pages wait for it."""

    task: asyncio.Task[Held]
    waiting: int = 0


class Remembered:
    """The last answers to what was asked."""

    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace
        self._held: OrderedDict[Hashable, Held] = OrderedDict()
        self._under_way: dict[Hashable, _Making] = {}
        self._one_at_a_time = asyncio.Lock()

    async def answer(self, asked: Hashable, make: Callable[[], Awaitable[Answer]]) -> Held:
        """The answer to what was `asked`, made by `make` where there may be news.

        It is made once for all who wait for it; that ends with the last of them.

        Raises: whatever `make` raises.
        """
        making = self._under_way.get(asked)
        if making is None:
            making = _Making(asyncio.create_task(self._newest(asked, make)))
            self._under_way[asked] = making
        making.waiting += 1
        try:
            return await asyncio.shield(making.task)
        finally:
            making.waiting -= 1
            if not making.waiting:
                del self._under_way[asked]
                making.task.cancel()

    async def _newest(self, asked: Hashable, make: Callable[[], Awaitable[Answer]]) -> Held:
        async with self._one_at_a_time:
            held = self._held.get(asked)
            if held is None or self._may_be_old(held):
                held = self._held[asked] = await self._refreshed(make)
            self._held.move_to_end(asked)
            while len(self._held) > _MOST:
                self._held.popitem(last=False)
            return held

    def _may_be_old(self, held: Held) -> bool:
        age_s = time.monotonic() - held.made_t
        if age_s < max(_SHORTEST_PAUSE_S, _PAUSES * held.took_s):
            return False
        return age_s >= _LONGEST_PAUSE_S or held.version != self._version()

    async def _refreshed(self, make: Callable[[], Awaitable[Answer]]) -> Held:
        began, version = time.monotonic(), self._version()
        answer = await make()
        body = answer.model_dump_json(context=ON_COMMAND_LINE).encode(errors="replace")
        now = time.monotonic()
        etag = f'"{hashlib.blake2b(body, digest_size=12).hexdigest()}"'
        return Held(body, etag, version, now, now - began)

    def _version(self) -> object:
        return self._workspace.control.version(), self._workspace.metrics.version()
