"""Boxes that a stand-in rents out: each a real sshd on loopback, started when it boots."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from support.backends.ssh_hosts import Sshd
from support.backends.tcp_proxy import free_port


@dataclass
class Modes:
    """How a stand-in behaves; a test sets what it wants before the request.

    `has_sshd`: False for boxes that say they run, and answer no SSH ever; `boots_after_reads`: so
    many times a box is looked at or listed before it has booted; `lets_in`: False for boxes that
    refuse the request's key; `no_capacity`: nothing is left when a box is asked for, though it is
    offered; `price_factor`: of all prices from now on; `cost_factor`: of what a box then really
    costs; `listed_after_end`: so many times a box is still listed after it was ended;
    `listed_late`: so many times a new one is not listed yet.
    """

    has_sshd: bool = True
    boots_after_reads: int = 0
    lets_in: bool = True
    no_capacity: bool = False
    price_factor: float = 1.0
    cost_factor: float = 1.0
    listed_after_end: int = 0
    listed_late: int = 0


@dataclass
class RentableBox:
    """A box that was created; `body` is the request.

    `let_in` makes its sshd one that knows the request's key; `own_key` is good for nothing but
    ending it; `environment` is that of its sessions; `user`, `address` and `port` are where it is
    reached.
    """

    provider_id: str
    name: str
    usd_per_h: float
    modes: Modes
    let_in: Callable[[Sshd], None]
    body: Mapping[str, Any]
    environment: Mapping[str, str] = field(default_factory=dict)
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

    def look(self) -> bool:
        """Whether it has booted by now; it does so once it has been looked at often enough."""
        with self._lock:
            self._reads += 1
            if self.ended or self._reads <= self.modes.boots_after_reads:
                return False
            if self.modes.has_sshd and self.sshd is None:
                self._boot()
            return True

    def is_listed(self) -> bool:
        """Whether the provider lists it this time."""
        with self._lock:
            if not self.ended:
                self._listings += 1
                return self._listings > self.modes.listed_late
            self._listings_left -= 1
            return self._listings_left >= 0

    def ends_soon(self) -> None:
        """From now on it costs nothing and boots no more; `end` stops what runs on it."""
        with self._lock:
            if not self.ended:
                self.ended, self._listings_left = True, self.modes.listed_after_end

    def end(self) -> None:
        """Stop it for good, with all that runs on it; may be repeated."""
        self.ends_soon()
        with self._lock:
            sshd, self.sshd = self.sshd, None
            if sshd is not None:
                sshd.stop()

    def _boot(self) -> None:
        # Keys lie in the account's home, as a script on the box would find them.
        sshd = Sshd(
            user=self.user,
            address=self.address,
            port=self.port,
            environment=self.environment,
            options={"AuthorizedKeysFile": ".ssh/authorized_keys"},
        )
        try:
            if self.modes.lets_in:
                self.let_in(sshd)
            self.sshd = sshd.start()
        except BaseException:
            sshd.stop()
            raise


def knowing(public_key: str) -> Callable[[Sshd], None]:
    """A box whose provider puts a key where its sshd looks for it."""

    def let_in(sshd: Sshd) -> None:
        folder = sshd.home / ".ssh"
        folder.mkdir(mode=0o700)
        (folder / "authorized_keys").write_text(public_key.strip() + "\n")
        owner = sshd.home.stat()
        for path in (folder, folder / "authorized_keys"):
            os.chown(path, owner.st_uid, owner.st_gid)

    return let_in
