"""Instances of a stand-in provider: each a real sshd on loopback, started when it boots."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from support.backends.ssh_hosts import Sshd
from support.backends.tcp_proxy import free_port


@dataclass
class Modes:
    """How a stand-in behaves; a test sets it before the request.

    `has_sshd`: False for instances that are running but never answer SSH. `boots_after_reads`: how
    many reads or listings show an instance as booting. `accepts_key`: False for instances that
    refuse the request's key. `no_capacity`: a create request is refused although the offer is
    listed. `price_factor`: applied to all prices; `cost_factor`: to the cost of a created instance.
    `listed_after_end`: how many lists still show an ended instance; `listed_late`: how many don't
    show a new one.
    """

    has_sshd: bool = True
    boots_after_reads: int = 0
    accepts_key: bool = True
    no_capacity: bool = False
    price_factor: float = 1.0
    cost_factor: float = 1.0
    listed_after_end: int = 0
    listed_late: int = 0


@dataclass
class RentableInstance:
    """A created instance; `body` is the request.

    `authorize` adds the request's key to its sshd. `own_key` can only end the instance.
    `mounts`: by path there, a folder here. `environment` is that of its sessions; `user`, `address`
    and `port` are for SSH.
    """

    provider_id: str
    name: str
    usd_per_h: float
    modes: Modes
    authorize: Callable[[Sshd], None]
    body: Mapping[str, Any]
    environment: Mapping[str, str] = field(default_factory=dict)
    mounts: Mapping[str, Path] = field(default_factory=dict)
    own_key: str = ""
    user: str = "root"
    address: str = "127.0.0.1"
    port: int = field(default_factory=lambda: free_port("127.0.0.1"))
    created_t: float = field(default_factory=time.time)
    sshd: Sshd | None = None
    ended: bool = False
    _reads: int = 0
    _listings: int = 0
    _listings_left: int = 0
    _lock: threading.RLock = field(default_factory=threading.RLock)

    def poll(self) -> bool:
        """Whether it has booted; it boots after `boots_after_reads` polls."""
        with self._lock:
            self._reads += 1
            if self.ended or self._reads <= self.modes.boots_after_reads:
                return False
            if self.modes.has_sshd and self.sshd is None:
                self._boot()
            return True

    def is_listed(self) -> bool:
        """Whether this list shows it."""
        with self._lock:
            if not self.ended:
                self._listings += 1
                return self._listings > self.modes.listed_late
            self._listings_left -= 1
            return self._listings_left >= 0

    def ends_soon(self) -> None:
        """Stop its billing and booting; `end` stops its processes."""
        with self._lock:
            if not self.ended:
                self.ended, self._listings_left = True, self.modes.listed_after_end

    def end(self) -> None:
        """Stop it with all its processes. Idempotent."""
        self.ends_soon()
        with self._lock:
            sshd, self.sshd = self.sshd, None
            if sshd is not None:
                sshd.stop()

    def _boot(self) -> None:
        # Keys are in the account's home, where a script on the instance writes them.
        sshd = Sshd(
            user=self.user,
            address=self.address,
            port=self.port,
            environment=self.environment,
            options={"AuthorizedKeysFile": ".ssh/authorized_keys"},
        )
        try:
            if self.modes.accepts_key:
                self.authorize(sshd)
            self.sshd = sshd.start()
            for path, folder in self.mounts.items():
                sshd.mount(folder, path)
        except BaseException:
            sshd.stop()
            raise


def accepting(public_key: str) -> Callable[[Sshd], None]:
    """Authorize a key as providers do: in ~/.ssh/authorized_keys."""

    def authorize(sshd: Sshd) -> None:
        folder = sshd.home / ".ssh"
        folder.mkdir(mode=0o700)
        (folder / "authorized_keys").write_text(public_key.strip() + "\n")
        owner = sshd.home.stat()
        for path in (folder, folder / "authorized_keys"):
            os.chown(path, owner.st_uid, owner.st_gid)

    return authorize
