"""The record of a host that is reached over SSH."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal

TransportName = Literal["asyncssh", "openssh", "paramiko"]
LauncherName = Literal["process", "slurm"]
SLURM_OPTIONS = ("partition", "account", "qos", "constraint", "gres", "time", "modules")
DEFAULT_ROOT = "~/.trainmaster"


@dataclass(frozen=True, slots=True)
class HostRecord:
    """How a host is reached, and where its runs are stored.

    `address` is a name or IP address, or a `Host` of the user's OpenSSH configuration, which
    supplies the fields that are None. `key` is the path of a private key on this machine, `jump`
    one or more `[user@]host[:port]`, separated by commas. `root` and `cache` are folders on the
    host, where `~` is its user's home; a `cache` of None is `cache` in the root. `by_agent`: an
    agent added it. `launcher`: what holds supervisors there; with `slurm`, the address is a login
    node's, and the options after it are of all jobs there, None for what the cluster chooses;
    `modules`: names with commas between them; `time`: a duration.
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
    launcher: LauncherName = "process"
    partition: str | None = None
    account: str | None = None
    qos: str | None = None
    constraint: str | None = None
    gres: str | None = None
    time: str | None = None
    modules: str | None = None

    @property
    def target(self) -> str:
        """The address as `hosts add` takes it."""
        user = f"{self.user}@" if self.user else ""
        host = f"[{self.address}]" if ":" in self.address else self.address
        port = f":{self.port}" if self.port else ""
        return f"{user}{host}{port}"

    @property
    def options(self) -> list[str]:
        """What it was added with, as words of `hosts add`, but for the address and the root."""
        kept = {
            "key": self.key,
            "jump": self.jump,
            "transport": None if self.transport == "asyncssh" else self.transport,
            "cache": self.cache,
            "launcher": None if self.launcher == "process" else self.launcher,
            **{name: getattr(self, name) for name in SLURM_OPTIONS if name != "modules"},
        }
        modules = self.modules.split(",") if self.modules else []
        pairs = [(name, value) for name, value in kept.items() if value is not None]
        pairs += [("module", module) for module in modules]
        return [word for name, value in pairs for word in (f"--{name}", value)]

    def to_dict(self) -> dict[str, Any]:
        """Its fields; the newer ones only where they say something, for earlier versions."""
        usual = {"by_agent": False, "launcher": "process", **dict.fromkeys(SLURM_OPTIONS)}
        fields = asdict(self)
        return {name: value for name, value in fields.items() if usual.get(name, ...) != value}
