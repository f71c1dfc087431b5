"""Where trainings run: the one port that services see, and which backend a host's name means."""

from __future__ import annotations

from collections.abc import Callable

from trainmaster.backends.backend import Backend
from trainmaster.errors import HostError
from trainmaster.host_record import HostRecord
from trainmaster.paths import Home

LOCAL = "local"
DEBUG = "debug"
NAMES = (LOCAL, DEBUG)


def open_backend(
    home: Home,
    host: str,
    record: HostRecord | None,
    recorded: Callable[[str], str | None] = lambda _run_id: None,
) -> Backend:
    """The backend of a host's name; `record`: what is on record about it, where anything is;
    `recorded`: where its runs that are on record lie (on this machine they move with the home).

    Raises:
        HostError: `HOST_UNKNOWN`.
    """
    from trainmaster.backends.hosted import HostedBackend
    from trainmaster.hosts import LocalHost

    if host == LOCAL:
        from trainmaster.launchers import ProcessLauncher

        return HostedBackend(LocalHost(LOCAL, home.local_root), ProcessLauncher())
    if host == DEBUG:
        from trainmaster.backends.debug import DebugBackend

        return DebugBackend(LocalHost(DEBUG, home.debug_root))
    if record is not None:
        from trainmaster.hosts.ssh import SshHost
        from trainmaster.launchers import ProcessLauncher

        return HostedBackend(
            SshHost(record, home), ProcessLauncher(), multiplexed=True, recorded=recorded
        )
    raise HostError(
        "HOST_UNKNOWN",
        f"No host is called {host!r}.",
        f"Use {' or '.join(NAMES)}, one that `trainmaster hosts` lists, or add it: "
        f"`trainmaster hosts add {host} USER@ADDRESS`.",
    )


__all__ = ["DEBUG", "LOCAL", "NAMES", "Backend", "open_backend"]
