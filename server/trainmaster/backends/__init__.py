"""Where trainings run: the one port that services see, and which backend a host's name means."""

from __future__ import annotations

from trainmaster.backends.backend import Backend
from trainmaster.errors import HostError
from trainmaster.paths import Home

LOCAL = "local"
DEBUG = "debug"
NAMES = (LOCAL, DEBUG)


def open_backend(home: Home, host: str) -> Backend:
    """The backend of a host's name.

    Raises:
        HostError: `HOST_UNKNOWN`.
    """
    from trainmaster.backends.hosted import HostedBackend
    from trainmaster.hosts import LocalHost

    if host == LOCAL:
        from trainmaster.launchers import ProcessLauncher

        return HostedBackend(LocalHost(LOCAL, home.local_root), ProcessLauncher())
    if host == DEBUG:
        from trainmaster.backends.debug import InProcessLauncher

        return HostedBackend(LocalHost(DEBUG, home.debug_root), InProcessLauncher())
    raise HostError(
        "HOST_UNKNOWN",
        f"No host is called {host!r}.",
        f"Known hosts: {', '.join(NAMES)}.",
    )


__all__ = ["DEBUG", "LOCAL", "NAMES", "Backend", "open_backend"]
