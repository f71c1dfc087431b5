"""Resolve a host's record and the user's OpenSSH configuration into an endpoint."""

from __future__ import annotations

import getpass
import ipaddress
import os
import re
import socket
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import cast

from trainer_runtime.core.protocol.command import option
from trainmaster.errors.errors import HostError, UsageError
from trainmaster.store.host_record import HostRecord

AGENT_VARIABLE = "SSH_AUTH_SOCK"
SSH_PORT = 22
# OpenSSH's defaults for an unnamed key.
DEFAULT_IDENTITIES = ("id_ed25519", "id_ecdsa", "id_rsa", "id_ed25519_sk", "id_ecdsa_sk")
LONGEST_CHAIN = 8
SYSTEM_KNOWN_HOSTS = (Path("/etc/ssh/ssh_known_hosts"), Path("/etc/ssh/ssh_known_hosts2"))
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]*")
_USER = re.compile(r"[A-Za-z0-9_.][A-Za-z0-9._+@-]*")
_ZONE = re.compile(r"[A-Za-z0-9._-]+")
_NUMBERS = re.compile(r"(?:0[xX][0-9a-fA-F]+|[0-9]+)(?:\.(?:0[xX][0-9a-fA-F]+|[0-9]+)){0,3}")
_PORT = re.compile(r"[0-9]{1,5}")


@dataclass(frozen=True, slots=True)
class Address:
    """A parsed `[user@]host[:port]`, safe as an argument of any program."""

    host: str
    user: str | None = None
    port: int | None = None


@dataclass(frozen=True, slots=True)
class Hop:
    """One machine on the path to a host.

    `named`: its name in the record or the configuration; `host`: its name or number on the network.
    `identities`: existing private keys, in order; `chosen`: whether they were configured.
    `agent`: the agent's socket; `identities_only`: use no other keys of the agent. `known_hosts`:
    the user's and the system's files, which know the hop as `known_as` where that is configured.
    """

    named: str
    host: str
    port: int
    user: str
    identities: tuple[Path, ...] = ()
    chosen: bool = False
    identities_only: bool = False
    agent: str | None = None
    proxy_command: str | None = None
    known_as: str | None = None
    known_hosts: tuple[Path, ...] = ()

    @property
    def pin_name(self) -> str:
        """Its name in known_hosts files: port 22 has no brackets."""
        return self.host if self.port == SSH_PORT else f"[{self.host}]:{self.port}"

    @property
    def shown(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.user}@{host}:{self.port}"


@dataclass(frozen=True, slots=True)
class Endpoint:
    """The path to a host: the machine itself and, in order, its jump hosts.

    `home` is the user's home here, `config` their OpenSSH configuration, if any.
    """

    name: str
    target: Hop
    jumps: tuple[Hop, ...]
    home: Path
    config: Path | None = None

    @property
    def hops(self) -> tuple[Hop, ...]:
        return (*self.jumps, self.target)

    def describe(self, hop: Hop) -> str:
        """A hop's name in messages."""
        return self.name if hop is self.target else f"{self.name}'s jump host {hop.host}"


def parse_address(text: str) -> Address:
    """Parse `[user@]host[:port]`; IPv6 addresses with a port need brackets.

    Raises:
        UsageError: `UNSAFE_NAME`, a part has a meaning to shells or programs; `BAD_ARGUMENT`, the
            port is invalid.
    """
    user, at, place = text.removeprefix("ssh://").rpartition("@")
    host, port = _part_port(place, text)
    if at and not _USER.fullmatch(user):
        raise _unsafe(text)
    if not (_NAME.fullmatch(host) or _is_ipv6(host)):
        raise _unsafe(text)
    if port is not None and not (_PORT.fullmatch(port) and 0 < int(port) < 65536):
        raise UsageError(
            "BAD_ARGUMENT",
            f"{text!r} does not end in a valid port.",
            "Give a port from 1 to 65535: USER@ADDRESS:PORT, and IPv6 addresses in brackets.",
        )
    return Address(host, user or None, int(port) if port else None)


def parse_jumps(text: str) -> list[Address]:
    """Parse comma-separated `[user@]host[:port]`; `none` is an empty list.

    Raises:
        UsageError: as `parse_address`.
    """
    if text.lower() == "none":
        return []
    return [parse_address(part) for part in text.split(",")]


def find_endpoint(record: HostRecord, environment: Mapping[str, str]) -> Endpoint:
    """The path to a host, from its record, the user's configuration and the existing keys.

    The record takes precedence over the configuration.

    Raises:
        UsageError: `UNSAFE_NAME` or `BAD_ARGUMENT`, a name is invalid.
        HostError: `AUTH_FAILED`, the record's key does not exist; `HOST_UNREACHABLE`, the
            configuration can't be read, or its jump hosts form a cycle.
    """
    home = Path(environment.get("HOME") or "~").expanduser()
    config = home / ".ssh" / "config"
    finder = _Finder(home, config if config.is_file() else None, environment)
    return finder.endpoint(record)


@dataclass(frozen=True, slots=True)
class _Finder:
    home: Path
    config: Path | None
    environment: Mapping[str, str]

    def endpoint(self, record: HostRecord) -> Endpoint:
        address = parse_address(record.address)
        wanted = Address(address.host, record.user or address.user, record.port or address.port)
        settings = self._settings(wanted)
        key = self._own_key(record)
        target = self._hop(wanted, settings, key)
        jumps = self._jumps(settings, record.jump, ())
        if key is not None:  # the record has one key, so jump hosts get it, too
            jumps = tuple(hop if hop.chosen else _with_key(hop, key) for hop in jumps)
        return Endpoint(record.name, target, jumps, self.home, self.config)

    def _jumps(
        self, settings: HostSettings, named: str | None, seen: Sequence[Address]
    ) -> tuple[Hop, ...]:
        """The hops before a machine: `named`, or those of the configuration.

        As with OpenSSH, the first of them may have its own jump hosts.
        """
        text = named or settings.proxy_jump
        addresses = parse_jumps(text) if text else []
        if not addresses:
            return ()
        if addresses[0] in seen or len(seen) >= LONGEST_CHAIN:
            raise HostError(
                "HOST_UNREACHABLE",
                f"The jump host {addresses[0].host} is reached through itself.",
                f"Fix the ProxyJump lines in {self.config}.",
            )
        jumps = [(address, self._settings(address)) for address in addresses]
        hops = [self._hop(address, jump_settings, None) for address, jump_settings in jumps]
        return (*self._jumps(jumps[0][1], None, (*seen, addresses[0])), *hops)

    def _settings(self, wanted: Address) -> HostSettings:
        if self.config is None:
            return HostSettings()
        return read_user_config(self.config, wanted.host, wanted.user, wanted.port)

    def _hop(self, wanted: Address, settings: HostSettings, key: Path | None) -> Hop:
        user = wanted.user or settings.user or getpass.getuser()
        host = parse_address(f"{user}@{_bracketed(settings.host or wanted.host)}").host
        host = _canonical(host)
        return Hop(
            named=wanted.host,
            host=host,
            port=wanted.port or settings.port or SSH_PORT,
            user=user,
            identities=(key,) if key else self._identities(settings),
            chosen=bool(key or settings.identities),
            identities_only=key is not None or settings.identities_only,
            agent=self._agent(settings.identity_agent),
            proxy_command=settings.proxy_command,
            known_as=settings.host_key_alias,
            known_hosts=self._known_hosts(settings),
        )

    def _own_key(self, record: HostRecord) -> Path | None:
        if record.key is None:
            return None
        key = self._path(record.key)
        if not key.is_file():
            raise HostError(
                "AUTH_FAILED",
                f"The private key of {record.name}, {key}, does not exist.",
                f"Restore it, or add the host again with another {option('--key')}.",
            )
        return key

    def _identities(self, settings: HostSettings) -> tuple[Path, ...]:
        named = [self._path(text) for text in settings.identities or ()]
        usual = [self.home / ".ssh" / name for name in DEFAULT_IDENTITIES]
        return tuple(path for path in named or usual if path.is_file())

    def _known_hosts(self, settings: HostSettings) -> tuple[Path, ...]:
        named = settings.known_hosts or ("~/.ssh/known_hosts", "~/.ssh/known_hosts2")
        return (*(self._path(text) for text in named), *SYSTEM_KNOWN_HOSTS)

    def _agent(self, named: str | None) -> str | None:
        if named is None:
            return None
        if named == AGENT_VARIABLE or named.startswith("$"):
            return self.environment.get(named.strip("${}")) or None
        return str(self._path(named))

    def _path(self, text: str) -> Path:
        path = self.home / text[2:] if text.startswith("~/") else Path(os.path.expanduser(text))
        return path.absolute()


def _part_port(place: str, text: str) -> tuple[str, str | None]:
    if place.startswith("["):
        host, closed, rest = place[1:].partition("]")
        if not closed or not (rest == "" or rest.startswith(":")):
            raise _unsafe(text)
        if not _is_ipv6(host):
            raise _unsafe(text)
        return host, rest[1:] if rest else None
    if place.count(":") > 1:
        return place, None
    host, colon, port = place.partition(":")
    return host, port if colon else None


def _is_ipv6(text: str) -> bool:
    address, percent, zone = text.partition("%")
    try:
        ipaddress.IPv6Address(address)
    except ValueError:
        return False
    return not percent or bool(_ZONE.fullmatch(zone))


def _canonical(host: str) -> str:
    """One spelling of an address: its pins are found whichever was typed."""
    if _is_ipv6(host):
        address, percent, zone = host.partition("%")
        return f"{ipaddress.IPv6Address(address)}{percent}{zone}"
    if _NUMBERS.fullmatch(host):
        with suppress(OSError):  # such as 127.1, and 2130706433
            return socket.inet_ntoa(socket.inet_aton(host))
    return host.lower().removesuffix(".") or host


def _with_key(hop: Hop, key: Path) -> Hop:
    return replace(hop, identities=(key, *hop.identities))


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def _unsafe(text: str) -> UsageError:
    return UsageError(
        "UNSAFE_NAME",
        f"{text!r} is not a valid address.",
        "Give USER@ADDRESS[:PORT]: letters, digits, dots, dashes and underscores, no leading dash; "
        "IPv6 addresses with a port in brackets.",
    )


@dataclass(frozen=True, slots=True)
class HostSettings:
    """The settings that every transport uses; None if not configured.

    `identity_agent` is a socket's path or a `$VARIABLE` with it; None for no agent.
    """

    host: str | None = None
    user: str | None = None
    port: int | None = None
    identities: tuple[str, ...] | None = None
    identities_only: bool = False
    identity_agent: str | None = AGENT_VARIABLE
    proxy_jump: str | None = None
    proxy_command: str | None = None
    host_key_alias: str | None = None
    known_hosts: tuple[str, ...] | None = None


def read_user_config(path: Path, named: str, user: str | None, port: int | None) -> HostSettings:
    """The settings for the machine `named`, with Host, Match and Include as in OpenSSH.

    Raises:
        HostError: `HOST_UNREACHABLE`, the file can't be parsed.
    """
    # asyncssh's parser, for all transports, so that they agree.
    from asyncssh.config import SSHClientConfig

    chosen = (getpass.getuser(), user or (), named, port or ())
    try:
        config = SSHClientConfig.load(None, path, False, False, False, *chosen)
        if config.has_match_final():
            config = SSHClientConfig.load(config, path, True, False, True, *chosen)
    except (ValueError, OSError) as error:
        raise HostError(
            "HOST_UNREACHABLE",
            f"The OpenSSH configuration {path} can't be used: {error}.",
            "Fix the file; `ssh -G HOST` shows how OpenSSH reads it.",
        ) from error
    identities = cast("list[str] | None", config.get("IdentityFile"))
    files = cast("list[str] | None", config.get("UserKnownHostsFile"))
    return HostSettings(
        host=cast("str | None", config.get("Hostname")),
        user=cast("str | None", config.get("User")),
        port=cast("int | None", config.get("Port")),
        identities=None if identities is None else tuple(identities),
        identities_only=bool(config.get("IdentitiesOnly", False)),
        identity_agent=cast("str | None", config.get("IdentityAgent", AGENT_VARIABLE)),
        proxy_jump=cast("str | None", config.get("ProxyJump")),
        proxy_command=cast("str | None", config.get("ProxyCommand")),
        host_key_alias=cast("str | None", config.get("HostKeyAlias")),
        known_hosts=None if files is None else tuple(files),
    )
