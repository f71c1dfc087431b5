"""The user's private keys: files, an agent, and passphrases.

All transports get their keys from here; passphrases do not leave this module.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import getpass
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from trainmaster.backends.ssh.endpoint import Endpoint, Hop
from trainmaster.errors.errors import HostError

if TYPE_CHECKING:
    from asyncssh import SSHKey

PASSPHRASE_VARIABLE = "TRAINMASTER_KEY_PASSPHRASE"
_MAGIC = b"openssh-key-v1\0"
# Keys opened with a typed passphrase, by path and mtime, for the process's lifetime: a reconnection
# asks no second time.
_opened_by_hand: dict[tuple[Path, int], SSHKey] = {}


@dataclass(frozen=True, slots=True)
class OpenKey:
    """A private key that can sign; `certificate`: its OpenSSH certificate, if any."""

    path: Path
    key: SSHKey
    certificate: Path | None


@dataclass(frozen=True, slots=True)
class HopKeys:
    """The keys to try at one hop.

    `files`: keys on this machine; `agent_keys`: public keys of the agent, in order; `files_first`:
    which of the two to try first; `locked`: files without a known passphrase.
    """

    files: tuple[OpenKey, ...] = ()
    agent: str | None = None
    agent_keys: tuple[bytes, ...] = ()
    files_first: bool = False
    locked: tuple[Path, ...] = ()

    @property
    def named(self) -> list[str]:
        """The keys' names in messages."""
        agent = [f"{len(self.agent_keys)} of the agent's"] if self.agent_keys else []
        return [*(str(opened.path) for opened in self.files), *agent]


@dataclass(frozen=True, slots=True)
class Identity:
    """The content of a key file that is readable without a passphrase.

    `public`: the public key in wire format, if the file or the .pub file contains it; `data`: the
    private key's file, None for a file with only the public key.
    """

    path: Path
    public: bytes | None
    data: bytes | None
    encrypted: bool


async def collect_keys(endpoint: Endpoint, environment: Mapping[str, str]) -> dict[Hop, HopKeys]:
    """The keys for every hop, without prompts."""
    passphrase = environment.get(PASSPHRASE_VARIABLE) or None
    return {hop: await _hop_keys(hop, passphrase) for hop in endpoint.hops}


def locked_keys(keys: Mapping[Hop, HopKeys]) -> list[Path]:
    """The locked key files, each once."""
    return list(dict.fromkeys(path for of_hop in keys.values() for path in of_hop.locked))


def needs_unlocking(keys: Mapping[Hop, HopKeys]) -> bool:
    """Whether a hop has only locked keys."""
    return any(
        of_hop.locked and not of_hop.files and not of_hop.agent_keys for of_hop in keys.values()
    )


async def unlock(paths: Sequence[Path], environment: Mapping[str, str]) -> None:
    """Ask for passphrases on a terminal; later calls of `collect_keys` find the keys open.

    Raises:
        HostError: `KEY_LOCKED`, no terminal, or a wrong passphrase.
    """
    for path in paths:
        if not on_terminal():
            raise key_locked(path, environment)
        prompt = f"Passphrase for {path}: "
        passphrase = await asyncio.to_thread(getpass.getpass, prompt)
        identity = await asyncio.to_thread(read_identity, path)
        key = await asyncio.to_thread(_open, identity, passphrase)
        if key is None:
            raise HostError(
                "KEY_LOCKED",
                f"That passphrase does not open the private key {path}.",
                "Try again.",
            )
        _opened_by_hand[path, path.stat().st_mtime_ns] = key


def key_locked(path: Path, environment: Mapping[str, str]) -> HostError:
    """The error for a locked key."""
    wrong = environment.get(PASSPHRASE_VARIABLE)
    message = f"The private key {path} needs its passphrase, and nobody is there to ask."
    if wrong:
        message = f"The passphrase in {PASSPHRASE_VARIABLE} does not open the private key {path}."
    return HostError(
        "KEY_LOCKED",
        message,
        f"Run `ssh-add {path}` with an ssh-agent, or set {PASSPHRASE_VARIABLE}, or run the command "
        "on a terminal.",
    )


def on_terminal() -> bool:
    """Whether a prompt is possible."""
    return all(stream is not None and stream.isatty() for stream in (sys.stdin, sys.stderr))


def read_identity(path: Path) -> Identity | None:
    """Parse a key file; None if it can't be read or holds no key."""
    try:
        data = path.read_bytes()
    except OSError:
        return None
    public = _public_line(data)
    if public is not None:
        return Identity(path, public, None, encrypted=False)
    if b"PRIVATE KEY-----" not in data:
        return None
    beside = path.with_name(f"{path.name}.pub")
    public = _public_line(beside.read_bytes()) if beside.is_file() else None
    inner, encrypted = _openssh_header(data)
    return Identity(path, inner or public, data, encrypted or b"ENCRYPTED" in data)


async def _hop_keys(hop: Hop, passphrase: str | None) -> HopKeys:
    readings = [await asyncio.to_thread(read_identity, path) for path in hop.identities]
    identities = [identity for identity in readings if identity is not None]
    named = [identity.public for identity in identities if identity.public]
    agent_keys = await _agent_keys(hop.agent) if hop.agent else []
    files, locked = [], []
    for identity in identities:
        if identity.data is None or (identity.encrypted and identity.public in agent_keys):
            continue
        key = await asyncio.to_thread(_open, identity, passphrase)
        if key is not None:
            files.append(OpenKey(identity.path, key, _certificate(identity.path)))
        elif identity.encrypted:
            locked.append(identity.path)
    kept = [key for key in agent_keys if key in named or not hop.identities_only]
    kept.sort(key=lambda key: key not in named)
    return HopKeys(tuple(files), hop.agent, tuple(kept), hop.chosen, tuple(locked))


async def _agent_keys(socket: str) -> list[bytes]:
    """The public keys in an agent; empty if it does not answer."""
    import asyncssh

    agent = asyncssh.SSHAgentClient(socket)
    try:
        return [pair.public_data for pair in await agent.get_keys()]
    except (OSError, ValueError):
        return []
    finally:
        agent.close()


def _open(identity: Identity | None, passphrase: str | None) -> SSHKey | None:
    """The private key; None for a wrong passphrase or a damaged file.

    Hardware keys (`sk-…`) work only through the agent or the system's ssh.
    """
    import asyncssh

    if identity is None or identity.data is None:
        return None
    if identity.encrypted:
        opened = _opened_by_hand.get((identity.path, identity.path.stat().st_mtime_ns))
        if opened is not None or passphrase is None:
            return opened
    try:
        key = asyncssh.import_private_key(identity.data, passphrase if identity.encrypted else None)
    except (asyncssh.KeyImportError, asyncssh.KeyEncryptionError):
        return None
    return None if key.algorithm.startswith(b"sk-") else key


def _certificate(path: Path) -> Path | None:
    beside = path.with_name(f"{path.name}-cert.pub")
    return beside if beside.is_file() else None


def _public_line(data: bytes) -> bytes | None:
    """The key of a `kind base64 comment` line."""
    words = data.split(None, 2)
    if len(words) < 2 or b"-----" in words[0]:
        return None
    try:
        key = base64.b64decode(words[1], validate=True)
    except binascii.Error:
        return None
    return key if key[4:].startswith(words[0]) else None


def _openssh_header(data: bytes) -> tuple[bytes | None, bool]:
    """The public key, and whether the private one is encrypted, by OpenSSH's PROTOCOL.key.

    (None, False) for other formats: they have no such header.
    """
    body = b"".join(line for line in data.splitlines() if not line.startswith(b"-----"))
    try:
        binary = base64.b64decode(body)
    except binascii.Error:
        return None, False
    if not binary.startswith(_MAGIC):
        return None, False
    cipher, rest = _string(binary[len(_MAGIC) :])
    _, rest = _string(rest)  # the key derivation and its options
    _, rest = _string(rest)
    public, _ = _string(rest[4:])
    return public, cipher != b"none"


def _string(data: bytes) -> tuple[bytes, bytes]:
    length = int.from_bytes(data[:4], "big")
    return data[4 : 4 + length], data[4 + length :]
