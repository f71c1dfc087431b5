"""Why a connection was not made, or did not last: the same words whatever the transport."""

from __future__ import annotations

import os
from collections.abc import Sequence

from trainer_runtime.core.protocol.text import shown
from trainmaster.backends.ssh.endpoint import Endpoint, Hop
from trainmaster.words.errors import HostError

CONNECT_TIMEOUT_S = 15
# A partition is seen after about 15 s; what stands still for a shorter time is waited for.
KEEPALIVE_EVERY_S = 5
KEEPALIVE_MISSES = 3


def unreachable(endpoint: Endpoint, hop: Hop, reason: str) -> HostError:
    """Refused, no route, no such name, no answer in time."""
    return HostError(
        "HOST_UNREACHABLE",
        f"{endpoint.told(hop)} ({hop.shown}) can't be reached: {_one_line(reason)}.",
        "Check that it is up, and its address, port and network: "
        f"`ssh -p {hop.port} {hop.user}@{hop.host}` must get there from here.",
        retryable=True,
    )


def reason_of(error: BaseException) -> str:
    """What the system or a library says about a failure, without its numbers."""
    if isinstance(error, TimeoutError):
        return f"no answer within {CONNECT_TIMEOUT_S} s"
    if isinstance(error, OSError) and error.errno and error.errno > 0:
        return os.strerror(error.errno)
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return str(error) or type(error).__name__


def no_common_algorithm(endpoint: Endpoint, hop: Hop, reason: str) -> HostError:
    """Both sides speak SSH, but share no way of doing so."""
    return HostError(
        "HOST_UNREACHABLE",
        f"{endpoint.told(hop)} ({hop.shown}) speaks another SSH than this transport: "
        f"{_one_line(reason)}.",
        "Add the host again with another --transport (openssh, paramiko, asyncssh).",
    )


def not_let_in(endpoint: Endpoint, hop: Hop, tried: Sequence[str]) -> HostError:
    """The host took none of the keys; `tried` names them."""
    keys = ", ".join(tried) if tried else "no key, for there is none"
    return HostError(
        "AUTH_FAILED",
        f"{endpoint.told(hop)} does not let {hop.user} in; tried were: {keys}.",
        f"Put your public key into {hop.user}'s ~/.ssh/authorized_keys there, or give another "
        "--key or user. Passwords, one-time codes and hardware keys take --transport openssh.",
    )


def link_lost(host: str, reason: str) -> HostError:
    """A connection that stood has broken."""
    return HostError(
        "LINK_LOST",
        f"The connection to {host} broke: {_one_line(reason)}.",
        "Try again; what runs on the host goes on without the connection.",
        retryable=True,
    )


def no_channel(host: str) -> HostError:
    """The server has let no more commands run over the connection for a long time."""
    return HostError(
        "HOST_UNREACHABLE",
        f"{host} lets no more commands run at a time over one connection.",
        "Raise MaxSessions in its sshd_config (10 is usual), or let fewer commands run at once.",
        retryable=True,
    )


def not_installed(transport: str, remedy: str) -> HostError:
    return HostError(
        "TRANSPORT_MISSING",
        f"The transport {transport} is not installed here.",
        remedy,
    )


def _one_line(reason: str) -> str:
    """The reason as it may be shown: part of it may be the other side's own words."""
    return shown(" ".join(reason.split()).encode()).rstrip(". ") or "no reason was given"
