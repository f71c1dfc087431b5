"""The ssh_config with which the system's ssh connects to one hop.

Each hop has its own file: options on the command line would not reach jump hosts, and a `Host`
block can't distinguish two hops at one address. These settings come first and take precedence; the
user's configuration is included for the rest (GSSAPI, ProxyCommand, ciphers, hardware keys …).
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from trainmaster.backends.ssh.endpoint import Endpoint
from trainmaster.backends.ssh.error_mapping import (
    CONNECT_TIMEOUT_S,
    KEEPALIVE_EVERY_S,
    KEEPALIVE_MISSES,
)

_SYSTEM_CONFIG = Path("/etc/ssh/ssh_config")
# Only the pins decide about host keys; no forwarding; no questions without a terminal.
_ALWAYS = {
    "IgnoreUnknown": "KnownHostsCommand",
    "GlobalKnownHostsFile": "/dev/null",
    "KnownHostsCommand": "none",
    "VerifyHostKeyDNS": "no",
    "CheckHostIP": "no",
    "NoHostAuthenticationForLocalhost": "no",
    "HashKnownHosts": "no",
    "UpdateHostKeys": "no",
    "ControlPath": "none",
    "ForwardAgent": "no",
    "ForwardX11": "no",
    "ClearAllForwardings": "yes",
    "Tunnel": "no",
    "PermitLocalCommand": "no",
    "RemoteCommand": "none",
    "RequestTTY": "no",
    "TCPKeepAlive": "yes",
    "ConnectTimeout": str(CONNECT_TIMEOUT_S),
    "ServerAliveInterval": str(KEEPALIVE_EVERY_S),
    "ServerAliveCountMax": str(KEEPALIVE_MISSES),
    "NumberOfPasswordPrompts": "1",
    "LogLevel": "INFO",
}


@dataclass(frozen=True, slots=True)
class Prompts:
    """What ssh may ask for: anything on a `terminal`, or only a key's `passphrase`."""

    terminal: bool = False
    passphrase: bool = False

    @property
    def options(self) -> dict[str, str]:
        if self.passphrase:
            # SSH_ASKPASS only knows the passphrase: no server must be able to ask for it.
            return {
                "BatchMode": "no",
                "PasswordAuthentication": "no",
                "KbdInteractiveAuthentication": "no",
            }
        return {"BatchMode": "no" if self.terminal else "yes"}


@dataclass(frozen=True, slots=True)
class KnownHop:
    """Whether pins or the user's known_hosts files decide on a hop, and `by_certificate`."""

    decided: bool
    by_certificate: bool


def config_file(folder: Path, place: int) -> Path:
    return folder / f"{place}.config"


def log_file(folder: Path, place: int) -> Path:
    """The log of the hop at `place`; one per hop, to know which of them refused."""
    return folder / f"{place}.log"


def known_hosts_file(folder: Path) -> Path:
    return folder / "known_hosts"


def hop_config(
    endpoint: Endpoint, place: int, folder: Path, *, known_hop: KnownHop, manners: Prompts
) -> str:
    """The configuration for the hop at `place`; a key that `known_hop` leaves open gets pinned."""
    hop = endpoint.hops[place]
    options = {
        **_ALWAYS,
        **manners.options,
        "HostName": _literal(hop.host),
        "Port": str(hop.port),
        "User": hop.user,
        # A certificate is for the name itself.
        **({} if known_hop.by_certificate else {"HostKeyAlias": hop.pin_name}),
        "UserKnownHostsFile": _path(known_hosts_file(folder)),
        "StrictHostKeyChecking": "yes" if known_hop.decided else "accept-new",
        "IdentitiesOnly": "yes" if hop.identities_only else "no",
        "IdentityAgent": _path(Path(hop.agent)) if hop.agent else "none",
        **_way(endpoint, place, folder),
    }
    lines = ["Host *", *(f"  {name} {value}" for name, value in options.items())]
    lines += [f"  IdentityFile {_path(path)}" for path in hop.identities]
    lines += [f'  Include "{path}"' for path in _included(endpoint)]
    return "\n".join(lines) + "\n"


def _way(endpoint: Endpoint, place: int, folder: Path) -> dict[str, str]:
    """How to reach the hop: through the one before it, or by the user's ProxyCommand."""
    if place > 0:
        before = place - 1
        files = ["-F", str(config_file(folder, before)), "-E", str(log_file(folder, before))]
        words = [_literal(word) for word in ["ssh", *files]]
        through = ["--", endpoint.hops[before].named]
        return {"ProxyCommand": f"{shlex.join(words)} -W [%h]:%p {shlex.join(through)}"}
    return {} if endpoint.hops[0].proxy_command else {"ProxyJump": "none"}


def _included(endpoint: Endpoint) -> Iterator[Path]:
    if endpoint.config is not None:
        yield endpoint.config
    if _SYSTEM_CONFIG.is_file():
        yield _SYSTEM_CONFIG


def _literal(text: str) -> str:
    """A name with escaped percent signs, as in IPv6 zones: ssh expands others."""
    return text.replace("%", "%%")


def _path(path: Path) -> str:
    return f'"{_literal(str(path))}"'
