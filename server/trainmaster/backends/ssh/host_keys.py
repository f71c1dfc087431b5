"""Pinned host keys: pinned at first use; a change is refused until it is trusted explicitly.

Each host has its own file in OpenSSH's known_hosts format, with a line per hop. At first use, the
user's own known_hosts files and the pins of other hosts at the same address decide; what those
files refuse is refused later, too.
"""

from __future__ import annotations

import base64
import binascii
import fcntl
import hashlib
import os
import shlex
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from trainer_runtime.core.files.durable import sync_folder, write_atomic
from trainer_runtime.core.protocol.command import command
from trainmaster.backends.ssh.known_hosts import KnownKeys
from trainmaster.errors.errors import HostError

FILE_NAME = "known_hosts"
# From a kind of key to its signature algorithms.
_ALGORITHMS = {"ssh-rsa": ("rsa-sha2-512", "rsa-sha2-256")}


@dataclass(frozen=True, slots=True)
class Pin:
    """One key of one hop; `hop` as in known_hosts: `host` or `[host]:port`."""

    hop: str
    kind: str
    key: bytes

    @property
    def fingerprint(self) -> str:
        """As `ssh-keygen -l` shows it."""
        digest = base64.b64encode(hashlib.sha256(self.key).digest()).decode().rstrip("=")
        return f"SHA256:{digest}"

    @property
    def line(self) -> str:
        return f"{self.hop} {self.kind} {base64.b64encode(self.key).decode()}\n"


class Pins:
    """The pins of one host, in one file; changes are atomic for readers."""

    def __init__(
        self, path: Path, host: str, known_keys: Mapping[str, KnownKeys] | None = None
    ) -> None:
        """`known_keys`: what the user's known_hosts files say, by hop."""
        self.path = path
        self.name = host
        self._known = known_keys or {}

    def all(self) -> list[Pin]:
        """Every pin, in the file's order.

        Raises:
            HostError: `HOST_KEY_CHANGED`, a line is damaged: it could be the one that refuses.
        """
        try:
            text = self.path.read_text()
        except FileNotFoundError:
            return []
        return [pin for line in text.splitlines() for pin in self._parse(line)]

    def of(self, hop: str) -> list[Pin]:
        return [pin for pin in self.all() if pin.hop == hop]

    def accept(self, pin: Pin, label: str) -> None:
        """Accept a hop's key: pin it if none is pinned, otherwise compare it.

        `label` is the hop's name in messages.

        Raises:
            HostError: `HOST_KEY_CHANGED`.
        """
        if self._passes(pin, label):
            return
        with self._locked():  # of several processes at first use, one pins, the others compare
            if not self._passes(pin, label):
                text = "".join(pinned.line for pinned in [*self.all(), pin])
                write_atomic(self.path, text.encode(), 0o600)

    def forget(self) -> list[Pin]:
        """Remove all pins, so that the next connection pins the keys again; returns them."""
        with self._locked():
            try:
                pinned = self.all()
            except HostError:
                pinned = []
            self.path.unlink(missing_ok=True)
            sync_folder(self.path.parent)
        return pinned

    def order(self, hop: str, algorithms: Sequence[str]) -> list[str]:
        """Host key algorithms with the pinned kinds first.

        A server with several keys then presents the pinned one. The others remain, so that an
        impostor's key is received and reported.
        """
        kinds = [pin.kind for pin in self.of(hop)]
        kinds += [pin_of(hop, key).kind for key in sorted(self.known(hop).keys)]
        first = [name for kind in kinds for name in _ALGORITHMS.get(kind, (kind,))]
        return sorted(algorithms, key=lambda name: name not in first)

    def known(self, hop: str) -> KnownKeys:
        """What the user's known_hosts files say of a hop."""
        return self._known.get(hop, KnownKeys())

    def replace(self, hop: str, pins: Sequence[Pin]) -> None:
        """Pin these keys of a hop in place of those that are pinned."""
        with self._locked():
            kept = [pin for pin in self.all() if pin.hop != hop]
            text = "".join(pin.line for pin in [*kept, *pins])
            write_atomic(self.path, text.encode(), 0o600)

    def beside(self) -> Iterator[Pins]:
        """The pins of the other hosts, whose files lie in folders beside this one's."""
        for path in sorted(self.path.parent.parent.glob(f"[!.]*/{FILE_NAME}")):
            if path.parent != self.path.parent:
                yield Pins(path, path.parent.name)

    def expected(self, hop: str) -> list[Pin]:
        """The keys of which a hop has to present one; empty at a first use that nothing decides."""
        return self._expected(hop)[0]

    def changed(self, hop: str, label: str, kind: str, fingerprint: str) -> HostError:
        """The error for a key that differs from the expected ones."""
        expected, why = self._expected(hop)
        fix = self._remedy(hop, bool(self.of(hop)))
        fingerprints = " or ".join(pin.fingerprint for pin in expected) or "a certificate"
        return HostError(
            "HOST_KEY_CHANGED",
            f"{label} ({hop}) presents the {kind} key {fingerprint}, but {fingerprints} {why}. "
            "The connection may be intercepted.",
            fix,
        )

    def unverified(self, hop: str, label: str, reason: str) -> HostError:
        """The error for a certificate that doesn't prove a host's key."""
        return HostError(
            "HOST_KEY_CHANGED",
            f"The certificate of {label} ({hop}), which {self.known(hop).places} requires, is not "
            f"valid: {reason}.",
            "Ask the administrator of the machine; `ssh -v` shows the certificate.",
        )

    def _expected(self, hop: str) -> tuple[list[Pin], str]:
        """These keys, and why they are expected."""
        pinned, known_keys = self.of(hop), self.known(hop)
        if pinned:
            return pinned, "was pinned"
        if known_keys.keys or known_keys.authorities:
            keys = [pin_of(hop, key) for key in sorted(known_keys.keys)]
            return keys, f"is expected by {known_keys.places}"
        other = self._beside(hop)
        if other is not None:
            return other.of(hop), f"was pinned for the host {other.name} at the same address"
        return [], "was pinned"

    def _beside(self, hop: str) -> Pins | None:
        """Another host with pins for this hop; a damaged file only keeps its own host out."""
        for other in self.beside():
            with suppress(HostError):
                if other.of(hop):
                    return other
        return None

    def _remedy(self, hop: str, is_pinned: bool) -> str:
        known_keys = self.known(hop)
        if not is_pinned and known_keys.decides:
            return (
                "Compare the fingerprint with the machine's. If it is right, run `ssh-keygen -R "
                f"{shlex.quote(known_keys.name)}`, and connect once with ssh, which asks."
            )
        other = None if is_pinned else self._beside(hop)
        return (
            "If the machine was reinstalled, compare the fingerprint, then run "
            f"{command('hosts trust', (other or self).name)}."
        )

    def _passes(self, pin: Pin, label: str) -> bool:
        """Whether the key is pinned; False at a first use."""
        pinned, known_keys = self.of(pin.hop), self.known(pin.hop)
        if pin.key in known_keys.revoked:
            raise HostError(
                "HOST_KEY_CHANGED",
                f"{label} ({pin.hop}) presents the {pin.kind} key {pin.fingerprint}, which "
                f"{known_keys.places} marks as revoked.",
                "Don't connect. Ask the administrator of the machine for its new key.",
            )
        expected = self.expected(pin.hop)
        if (expected and pin not in expected) or (not expected and known_keys.decides):
            raise self.changed(pin.hop, label, pin.kind, pin.fingerprint)
        # Of another kind, ssh would have asked the host for the one that it knows.
        same_kind = {key for key in known_keys.keys if pin_of(pin.hop, key).kind == pin.kind}
        if same_kind and pin.key not in same_kind:
            raise self._contradicted(pin.hop, label, known_keys)
        return bool(pinned)

    def _contradicted(self, hop: str, label: str, known_keys: KnownKeys) -> HostError:
        pinned = " and ".join(pin.fingerprint for pin in self.of(hop))
        named = " and ".join(pin_of(hop, key).fingerprint for key in sorted(known_keys.keys))
        return HostError(
            "HOST_KEY_CHANGED",
            f"{pinned} is pinned for {label} ({hop}), but {known_keys.places} names {named}: ssh "
            "would refuse the pinned key.",
            "Compare both with the machine's key. If the other one is right, run "
            f"{command('hosts trust', self.name)}; if the pinned one is, `ssh-keygen -R "
            f"{shlex.quote(known_keys.name)}`.",
        )

    def _parse(self, line: str) -> Iterator[Pin]:
        if not line.strip() or line.startswith(("#", "@")):
            return
        try:
            hops, kind, text = line.split()[:3]
            key = base64.b64decode(text, validate=True)
        except (ValueError, binascii.Error) as error:
            raise HostError(
                "HOST_KEY_CHANGED",
                f"The pinned keys of {self.name} are damaged: {self.path} has a line that is "
                "not in known_hosts format.",
                f"Run {command('hosts trust', self.name)} to pin its key again.",
            ) from error
        for hop in hops.split(","):
            yield Pin(hop, kind, key)

    @contextmanager
    def _locked(self) -> Iterator[None]:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        lock = self.path.with_name(f".{self.path.name}.lock")
        descriptor = os.open(lock, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)  # held only while the file is written
            yield
        finally:
            os.close(descriptor)


def pin_of(hop: str, key: bytes) -> Pin:
    """A pin from a key in wire format, which begins with its kind."""
    length = int.from_bytes(key[:4], "big")
    return Pin(hop, key[4 : 4 + length].decode("ascii", errors="replace"), key)
