"""How many calls of a server read files at once: of one caller, and of all."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Hashable
from contextlib import asynccontextmanager
from dataclasses import dataclass

from trainer_runtime.core.protocol.figures import spoken_duration
from trainmaster.errors.errors import StateError

OF_CALLER, OF_ALL = 2, 4


@dataclass(frozen=True, slots=True)
class _Waiting:
    caller: Hashable
    admitted: asyncio.Future[None]


class Shares:
    """Admits the call of the caller who has the fewest; of these the first that came."""

    def __init__(self, of_caller: int = OF_CALLER, of_all: int = OF_ALL) -> None:
        self._of_caller, self._of_all = of_caller, of_all
        self._taken: Counter[Hashable] = Counter()
        self._waiting: list[_Waiting] = []

    async def take(self, caller: Hashable, within_s: float | None = None) -> None:
        """Wait until `caller` has one, which `give_back` frees.

        Raises:
            StateError: `READS_AT_ONCE`, there was none within so many seconds.
        """
        try:
            async with asyncio.timeout(within_s):
                await self._take(caller)
        except TimeoutError:
            raise StateError(
                "READS_AT_ONCE",
                f"This call waited {spoken_duration(within_s or 0.0)} for others that read files: "
                f"{self._of_caller} of one caller do so at once, {self._of_all} of all.",
                "Await the others, then repeat the call.",
                retryable=True,
            ) from None

    async def _take(self, caller: Hashable) -> None:
        mine = _Waiting(caller, asyncio.get_running_loop().create_future())
        self._waiting.append(mine)
        self._admit()
        try:
            await mine.admitted
        except asyncio.CancelledError:
            if mine in self._waiting:
                self._waiting.remove(mine)
            else:
                self.give_back(caller)
            raise

    def give_back(self, caller: Hashable) -> None:
        self._taken[caller] -= 1
        if not self._taken[caller]:
            del self._taken[caller]
        self._admit()

    @asynccontextmanager
    async def taken(self, caller: Hashable, within_s: float | None = None) -> AsyncIterator[None]:
        """Within, `caller` has one. Raises: as `take`."""
        await self.take(caller, within_s)
        try:
            yield
        finally:
            self.give_back(caller)

    def _taken_by(self, waiting: _Waiting) -> int:
        return self._taken[waiting.caller]

    def _admit(self) -> None:
        while self._taken.total() < self._of_all:
            first = min(self._waiting, key=self._taken_by, default=None)
            if first is None or self._taken_by(first) >= self._of_caller:
                return
            self._waiting.remove(first)
            self._taken[first.caller] += 1
            if not first.admitted.done():
                first.admitted.set_result(None)
