"""Opens a machine by a host's name; what ticks do needs no more of the registry."""

from __future__ import annotations

from trainer_runtime.core.protocol.command import command
from trainmaster.backends import LOCAL
from trainmaster.backends.hosts import Host, LocalHost
from trainmaster.backends.hosts.ssh import SshHost
from trainmaster.errors.errors import HostError, UsageError
from trainmaster.store.host_record import HostRecord
from trainmaster.sync.workspace import Workspace

# Names with another meaning wherever a host's name is accepted.
RESERVED = frozenset({"local", "debug", "kaggle", "operator", "none", "auto", "s3"})


def known_record(workspace: Workspace, name: str) -> HostRecord:
    """The record of a host that is reached over SSH.

    Raises:
        HostError: `HOST_UNKNOWN`.
        UsageError: `BAD_ARGUMENT`, the name is this machine's.
    """
    record = workspace.control.host(name)
    if record is None and name in RESERVED:
        raise UsageError(
            "BAD_ARGUMENT",
            f"{name} is not a host that was added.",
            f"{command('hosts')} lists the added hosts.",
        )
    if record is None:
        workspace.backend(name)  # raises `HOST_UNKNOWN`, with how to add it
        raise HostError(
            "HOST_UNKNOWN", f"No host has the name {name!r}.", f"See {command('hosts')}."
        )
    return record


def open_host(workspace: Workspace, name: str) -> Host:
    """The machine itself, with its own connection; the caller disconnects it.

    Raises:
        HostError: `HOST_UNKNOWN`.
    """
    if name == LOCAL:
        return LocalHost(LOCAL, workspace.home.local_root)
    return SshHost(known_record(workspace, name), workspace.home)
