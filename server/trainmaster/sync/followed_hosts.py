"""Several hosts that are followed at once, which may change meanwhile."""

from __future__ import annotations

from collections.abc import Sequence

from trainmaster.sync.follow import Following
from trainmaster.sync.workspace import Workspace


class FollowedHosts:
    """Hosts whose runs' news are in the database as long as they are named; see `following`."""

    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace
        self._followed: dict[str, Following] = {}

    async def follow(self, hosts: Sequence[str]) -> None:
        """Follow these hosts, and no others any more.

        Raises:
            StorageError, sqlite3.Error: the home can't be used.
        """
        for host in hosts:
            if host not in self._followed:
                self._followed[host] = Following(self._workspace, host, None)
            self._followed[host].check()
        for host in [host for host in self._followed if host not in hosts]:
            await self._followed.pop(host).stop()
