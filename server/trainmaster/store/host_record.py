"""The record of a host that is reached over SSH."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any, Literal

from trainer_runtime.core.records import dataclass

TransportName = Literal["asyncssh", "openssh", "paramiko"]
DEFAULT_ROOT = "~/.trainmaster"


@dataclass(frozen=True, slots=True)
class HostRecord:
    """How a host is reached, and where its runs are stored.

    `address` is a name or IP address, or a `Host` of the user's OpenSSH configuration, which
    supplies the fields that are None. `key` is the path of a private key on this machine, `jump`
    one or more `[user@]host[:port]`, separated by commas. `root` and `cache` are folders on the
    host, where `~` is its user's home; a `cache` of None is `cache` in the root. `by_agent`: an
    agent added it.
    """

    name: str
    address: str
    user: str | None = None
    port: int | None = None
    key: str | None = None
    jump: str | None = None
    transport: TransportName = "asyncssh"
    root: str = DEFAULT_ROOT
    cache: str | None = None
    by_agent: bool = False

    def to_dict(self) -> dict[str, Any]:
        """Its fields; `by_agent` only where it says something, for earlier versions."""
        fields = asdict(self)
        if not self.by_agent:
            del fields["by_agent"]
        return fields
