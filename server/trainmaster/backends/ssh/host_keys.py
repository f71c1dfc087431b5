"""The keys that a host is known by: pinned at first use, and never changed unseen.

A host's pins are a file of its own in OpenSSH's known_hosts format, a line per hop on the way.
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

# A key of the kind on the left signs by any of the algorithms on the right.
_ALGORITHMS = {"ssh-rsa": ("rsa-sha2-512", "rsa-sha2-256")}


@dataclass(frozen=True, slots=True)
class Pin:
    """One key of one hop; `hop` is written as in known_hosts: `host` or `[host]:port`."""

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
    """The pins of one host, in one file; whoever reads it sees all of a change or nothing."""

    def __init__(self, path: Path, host: str) -> None:
        self.path = path
        self._host = host

    def all(self) -> list[Pin]:
        """Every pin, in the file's order.

        Raises:
            HostError: `HOST_KEY_CHANGED` where a line is damaged: it may be the one that would
                have refused.
        """
        try:
            text = self.path.read_text()
        except FileNotFoundError:
            return []
        return [pin for line in text.splitlines() for pin in self._parse(line)]

    def of(self, hop: str) -> list[Pin]:
        return [pin for pin in self.all() if pin.hop == hop]

    def accept(self, pin: Pin, told: str) -> None:
        """Let a hop's key pass: pin it where none is pinned, compare it where one is.

        `told` is how a message calls the hop.

        Raises:
            HostError: `HOST_KEY_CHANGED`.
        """
        if self._passes(pin, told):
            return
        with self._locked():  # of several processes at first use, one pins and the others compare
            if not self._passes(pin, told):
                text = "".join(known.line for known in [*self.all(), pin])
                write_atomic(self.path, text.encode(), 0o600)

    def forget(self) -> list[Pin]:
        """Drop all pins, so that the next connection pins anew; those that there were."""
        with self._locked():
            try:
                known = self.all()
            except HostError:
                known = []
            self.path.unlink(missing_ok=True)
            sync_folder(self.path.parent)
        return known

    def order(self, hop: str, algorithms: Sequence[str]) -> list[str]:
        """Algorithms for host keys with the pinned kinds first.

        A server that has several keys then shows the one that is known. The others stay, so that
        an impostor's key is seen and named.
        """
        kinds = [pin.kind for pin in self.of(hop)]
        first = [name for kind in kinds for name in _ALGORITHMS.get(kind, (kind,))]
        return sorted(algorithms, key=lambda name: name not in first)

    def changed(self, hop: str, told: str, kind: str, fingerprint: str) -> HostError:
        """The refusal of a key that is another than the pinned one."""
        known = " or ".join(pin.fingerprint for pin in self.of(hop))
        return HostError(
            "HOST_KEY_CHANGED",
            f"{told} ({hop}) shows the {kind} key {fingerprint}, but {known} was pinned. "
            "Somebody may stand in between.",
            f"Where the machine was really set up anew, run `trainmaster hosts trust {self._host}`."
            " Compare the fingerprint first.",
        )

    def _passes(self, pin: Pin, told: str) -> bool:
        known = self.of(pin.hop)
        if known and pin not in known:
            raise self.changed(pin.hop, told, pin.kind, pin.fingerprint)
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
                f"The pinned keys of {self._host} are damaged: {self.path} has a line that is none "
                "of known_hosts.",
                f"Run `trainmaster hosts trust {self._host}` to pin its key anew.",
            ) from error
        for hop in hops.split(","):
            yield Pin(hop, kind, key)

    @contextmanager
    def _locked(self) -> Iterator[None]:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        lock = self.path.with_name(f".{self.path.name}.lock")
        descriptor = os.open(lock, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)  # held for a file's write, so nobody waits long
            yield
        finally:
            os.close(descriptor)


def pin_of(hop: str, key: bytes) -> Pin:
    """A pin from a key as it goes over the wire, which begins with its own kind."""
    length = int.from_bytes(key[:4], "big")
    return Pin(hop, key[4 : 4 + length].decode("ascii", errors="replace"), key)
