"""Connection errors, with the same messages for all transports."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

from trainer_runtime.core.protocol.command import option
from trainer_runtime.core.protocol.text import shown
from trainmaster.errors.errors import HostError

if TYPE_CHECKING:
    from trainmaster.backends.ssh.endpoint import Endpoint, Hop

CONNECT_TIMEOUT_S = 15
# A partition is detected after about 15 s; shorter pauses are tolerated.
KEEPALIVE_EVERY_S = 5
KEEPALIVE_MISSES = 3


def unreachable(endpoint: Endpoint, hop: Hop, reason: str) -> HostError:
    """The error for a refused connection, no route, an unknown name, or a timeout."""
    return HostError(
        "HOST_UNREACHABLE",
        f"{endpoint.describe(hop)} ({hop.shown}) can't be reached: {_one_line(reason)}.",
        "Check that it is up, and its address, port and network: "
        f"`ssh -p {hop.port} {hop.user}@{hop.host}` must get there from here.",
        retryable=True,
    )


def reason_of(error: BaseException) -> str:
    """The message of the system or a library, without error numbers."""
    if isinstance(error, TimeoutError):
        return f"no answer within {CONNECT_TIMEOUT_S} s"
    if isinstance(error, OSError) and error.errno and error.errno > 0:
        return os.strerror(error.errno)
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return str(error) or type(error).__name__


def no_common_algorithm(endpoint: Endpoint, hop: Hop, reason: str) -> HostError:
    """The error for two SSH implementations without a common algorithm."""
    return HostError(
        "HOST_UNREACHABLE",
        f"{endpoint.describe(hop)} ({hop.shown}) has no algorithm in common with this transport: "
        f"{_one_line(reason)}.",
        f"Add the host again with another {option('--transport')} (openssh, paramiko, asyncssh).",
    )


def authentication_refused(endpoint: Endpoint, hop: Hop, tried: Sequence[str]) -> HostError:
    """The error for a host that accepted none of the keys `tried`."""
    keys = ", ".join(tried) if tried else "no key, for there is none"
    return HostError(
        "AUTH_FAILED",
        f"{endpoint.describe(hop)} refuses {hop.user}; tried: {keys}.",
        f"Add your public key to {hop.user}'s ~/.ssh/authorized_keys there, or give another "
        f"{option('--key')} or user. Passwords, one-time codes and hardware keys need "
        f"{option('--transport', 'openssh')}.",
    )


def link_lost(host: str, reason: str) -> HostError:
    """The error for an established connection that broke."""
    return HostError(
        "LINK_LOST",
        f"The connection to {host} broke: {_one_line(reason)}.",
        "Try again; processes on the host continue without the connection.",
        retryable=True,
    )


def no_channel(host: str) -> HostError:
    """The error for a server that has allowed no further command for a long time."""
    return HostError(
        "HOST_UNREACHABLE",
        f"{host} allows no further commands over one connection.",
        "Raise MaxSessions in its sshd_config (10 is usual), or run fewer commands at once.",
        retryable=True,
    )


def not_installed(transport: str, remedy: str) -> HostError:
    return HostError(
        "TRANSPORT_MISSING",
        f"The transport {transport} is not installed here.",
        remedy,
    )


def _one_line(reason: str) -> str:
    """A reason on one line without control characters: the server may have chosen its text."""
    return shown(" ".join(reason.split()).encode()).rstrip(". ") or "no reason was given"
