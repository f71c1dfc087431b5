"""The port that services see: everything a run needs of the place where it stays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from trainer_runtime.core.desired import Desired
from trainmaster.mirror import PlacementMirror
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
        """Tell the supervisor what is wanted now."""

    async def start(self, run_id: str) -> bool:
        """Make sure that a supervisor runs; True if it had to be started."""

    async def copy_new(self, run_id: str, mirror: PlacementMirror) -> bool:
        """Copy into the mirror what is new since the last time; True if there was anything."""

    async def verify(self, run_id: str) -> Sequence[Mapping[str, Any]]:
        """Read every byte of every checkpoint: `{"step", "path", "problems"}` each."""

    async def contents(self, run_id: str) -> list[str]:
        """The names in the run's folder, its checkpoints one by one."""

    async def disconnect(self) -> None:
        """End what connects to the place; may be repeated."""

    async def remove(self, run_id: str, names: Sequence[str]) -> int:
        """Remove these names from the run's folder, the folder itself for `.`; bytes freed."""
