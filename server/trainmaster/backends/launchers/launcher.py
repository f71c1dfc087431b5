"""The port by which a backend has a supervisor started."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from trainmaster.backends.hosts import Host


class Launcher(Protocol):
    name: str

    async def ensure_supervisor(self, host: Host, folder: str) -> bool:
        """Make sure that a supervisor runs for the run in `folder`; True if it had to be started.

        Raises:
            HostError: `SUPERVISOR_DID_NOT_START`.
        """

    async def supervised(self, host: Host, folders: Sequence[str]) -> frozenset[str]:
        """Those of the runs' folders whose supervisor lives now; one call, however many they are.

        Raises:
            HostError: the host gives no usable answer.
        """
