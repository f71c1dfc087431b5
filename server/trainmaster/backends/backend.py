"""The port of a place where runs live: placing, requests, secrets, following, removal.

Every backend implements all of this. Optional capabilities are in `capabilities.py`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Protocol

from trainer_runtime.core.protocol.desired import Desired

if TYPE_CHECKING:
    from trainmaster.backends.follower import Follower
    from trainmaster.plan.facts import HostFacts


class Backend(Protocol):
    """One place. Every method is idempotent: a second call finds the first one's work done.

    Raises, each of them: `HostError` where the place refuses or can't be reached.
    """

    name: str
    launcher_name: str

    async def facts(self, python: str | None) -> HostFacts:
        """The facts of the machine; `python`: the interpreter that trains, None for its own."""

    async def folder(self, run_id: str) -> str:
        """The path of the run's folder."""

    async def place(
        self, run_id: str, files: Mapping[str, bytes], executable: frozenset[str]
    ) -> None:
        """Create the run's folder, `desired.json` included, atomically."""

    async def request(self, run_id: str, desired: Desired) -> None:
        """Replace the desired state of the run, which its supervisor reads."""

    async def deliver_secrets(
        self, run_id: str, generation: int, values: Mapping[str, str]
    ) -> None:
        """Give a placed run the secrets for a request, in a file that only its owner can read."""

    async def withdraw_secrets(self, run_id: str) -> bool:
        """Remove the rest of an ended run's secrets from the place, True if there was any; does
        nothing where a supervisor removes them."""

    async def start(self, run_id: str) -> bool:
        """Make sure that a supervisor runs; True if it had to be started."""

    def follower(self) -> AbstractAsyncContextManager[Follower]:
        """A follower of the runs there; connects on first use, disconnects on exit."""

    async def contents(self, run_id: str) -> list[str]:
        """The names in the run's folder, its checkpoints one by one."""

    async def remove(self, run_id: str, names: Sequence[str]) -> int:
        """Remove these names from the run's folder, the folder itself for `.`; bytes freed."""

    async def disconnect(self) -> None:
        """Close connections to the place; may be repeated."""
