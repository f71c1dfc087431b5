"""Pinned host keys: pinned at first use; a change is refused until it is trusted explicitly.

Each host has its own file in OpenSSH's known_hosts format, with a line per hop.
"""

from __future__ import annotations

import base64
import binascii
import fcntl
import hashlib
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from trainer_runtime.core.files.durable import sync_folder, write_atomic
from trainmaster.words.errors import HostError

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

    def __init__(self, path: Path, host: str) -> None:
        self.path = path
        self._host = host

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
                text = "".join(known.line for known in [*self.all(), pin])
                write_atomic(self.path, text.encode(), 0o600)

    def forget(self) -> list[Pin]:
        """Remove all pins, so that the next connection pins the keys again; returns them."""
        with self._locked():
            try:
                known = self.all()
            except HostError:
                known = []
            self.path.unlink(missing_ok=True)
            sync_folder(self.path.parent)
        return known

    def order(self, hop: str, algorithms: Sequence[str]) -> list[str]:
        """Host key algorithms with the pinned kinds first.

        A server with several keys then presents the pinned one. The others remain, so that an
        impostor's key is received and reported.
        """
        kinds = [pin.kind for pin in self.of(hop)]
        first = [name for kind in kinds for name in _ALGORITHMS.get(kind, (kind,))]
        return sorted(algorithms, key=lambda name: name not in first)

    def changed(self, hop: str, label: str, kind: str, fingerprint: str) -> HostError:
        """The error for a key that differs from the pinned one."""
        known = " or ".join(pin.fingerprint for pin in self.of(hop))
        return HostError(
            "HOST_KEY_CHANGED",
            f"{label} ({hop}) presents the {kind} key {fingerprint}, but {known} was pinned. "
            "The connection may be intercepted.",
            f"If the machine was reinstalled, compare the fingerprint, then run "
            f"`trainmaster hosts trust {self._host}`.",
        )

    def _passes(self, pin: Pin, label: str) -> bool:
        known = self.of(pin.hop)
        if known and pin not in known:
            raise self.changed(pin.hop, label, pin.kind, pin.fingerprint)
        return bool(known)

    def _parse(self, line: str) -> Iterator[Pin]:
        if not line.strip() or line.startswith("#"):
            return
        try:
            hops, kind, text = line.split()[:3]
            key = base64.b64decode(text, validate=True)
        except (ValueError, binascii.Error) as error:
            raise HostError(
                "HOST_KEY_CHANGED",
                f"The pinned keys of {self._host} are damaged: {self.path} has a line that is "
                "not in known_hosts format.",
                f"Run `trainmaster hosts trust {self._host}` to pin its key again.",
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
