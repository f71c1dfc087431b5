"""What the caller of a resume asks for."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from trainmaster.errors.confirmation import Confirm
from trainmaster.sync.workspace import Workspace

# Of a rented instance, by its tag: `machines.renting.instances.advance_instance`.
RefreshInstance = Callable[[Workspace, str], Awaitable[object]]


async def no_instances(workspace: Workspace, tag: str) -> object:
    """For callers without rented instances."""
    return None


@dataclass(frozen=True, slots=True)
class ResumeRequest:
    """What is to change, where the run is to resume, and who allows what is beyond the policy.

    `host`: None for where it is; `abandon`: also where its old host may still train it.
    """

    start: str | None
    sets: Sequence[str]
    apply: str | None
    confirm: Confirm | None
    host: str | None = None
    abandon: bool = False
    refresh_instance: RefreshInstance = no_instances
