"""The port that services see: what a run needs of the place where it stays.

Every backend does all of this. What only some can do stands in `capabilities.py`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Protocol

from trainer_runtime.core.protocol.desired import Desired
from trainmaster.backends.follower import Follower

if TYPE_CHECKING:
    from trainmaster.plan.facts import HostFacts


class Backend(Protocol):
    """One place. Every method may be repeated: the second call finds the first one's work done.

    Raises, each of them: `HostError` where the place refuses or can't be reached.
    """

    name: str
    launcher_name: str

    async def facts(self, python: str | None) -> HostFacts:
        """What the machine has to offer; `python`: the interpreter that trains, None its own."""

    async def folder(self, run_id: str) -> str:
        """Where the run's folder lies there."""

    async def place(
        self, run_id: str, files: Mapping[str, bytes], executable: frozenset[str]
    ) -> None:
        """Lay the run's folder down, `desired.json` included, wholly or not at all."""

    async def request(self, run_id: str, desired: Desired) -> None:
        """Replace what is wanted of the run, which its supervisor reads."""

    async def deliver_secrets(
        self, run_id: str, generation: int, values: Mapping[str, str]
    ) -> None:
        """Give a placed run the secrets for a request, in a file that its owner alone can read."""

    async def withdraw_secrets(self, run_id: str) -> bool:
        """Remove what the place still holds of an ended run's secrets, True if that was anything;
        where a supervisor does so by itself, nothing is left to do."""

    async def start(self, run_id: str) -> bool:
        """Make sure that a supervisor runs; True if it had to be started."""

    def follower(self) -> AbstractAsyncContextManager[Follower]:
        """What follows runs there; connects when it is first used, disconnects at its end."""

    async def contents(self, run_id: str) -> list[str]:
        """The names in the run's folder, its checkpoints one by one."""

    async def remove(self, run_id: str, names: Sequence[str]) -> int:
        """Remove these names from the run's folder, the folder itself for `.`; bytes freed."""

    async def disconnect(self) -> None:
        """End what connects to the place; may be repeated."""
