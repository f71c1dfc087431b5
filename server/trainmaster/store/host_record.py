"""What is on record about a host that is reached over SSH."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal

TransportName = Literal["asyncssh", "openssh", "paramiko"]
DEFAULT_ROOT = "~/.trainmaster"


@dataclass(frozen=True, slots=True)
class HostRecord:
    """How a machine is reached, and where runs lie on it.

    `address` is a name or number, or a `Host` of the user's OpenSSH configuration, from which
    whatever is None here is taken. `key` is the path of a private key on this machine, `jump` one
    or more `[user@]host[:port]` with commas between them. `root` and `cache` are folders of the
    machine, `~` its user's home; `cache` None lies in the root.
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

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)
