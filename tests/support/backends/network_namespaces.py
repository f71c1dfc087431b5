"""Networks for tests, whose hosts have addresses of their own and can be cut off."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType

import pytest


class Network:
    """Hosts with addresses of their own on one switch; this machine is on it too.

    `add(host)` gives the host's namespace (for `Sshd(netns=…)`); `address(host)` its address.
    """

    def __init__(self) -> None:
        if os.geteuid() != 0:
            pytest.skip("networks of one's own take root")
        self._index = _claim_bridge()
        self._bridge = f"tmbr{self._index}"
        self._numbers: dict[str, int] = {}
        _ip("address", "add", f"{self._address(1)}/24", "dev", self._bridge)
        _ip("link", "set", self._bridge, "up")

    def __enter__(self) -> Network:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def add(self, host: str) -> str:
        """Join a new host to the network; its namespace's name."""
        self._numbers[host] = number = len(self._numbers) + 2
        space, link = self.namespace(host), self._link(host)
        _ip("netns", "add", space)
        _ip("link", "add", link, "type", "veth", "peer", "name", "eth0", "netns", space)
        _ip("link", "set", link, "master", self._bridge, "up")
        _ip("-n", space, "address", "add", f"{self._address(number)}/24", "dev", "eth0")
        _ip("-n", space, "link", "set", "eth0", "up")
        _ip("-n", space, "link", "set", "lo", "up")
        return space

    def namespace(self, host: str) -> str:
        return f"tmns{self._index}-{self._numbers[host]}"

    def address(self, host: str) -> str:
        return self._address(self._numbers[host])

    def partition(self, host: str) -> None:
        """Take the host's link down: packets are dropped silently."""
        _ip("link", "set", self._link(host), "down")

    def swallow(self, host: str) -> None:
        """Take the host's link down, but keep sending: what was no neighbour any more would be
        refused after three seconds, while here all of it disappears without a word."""
        link = json.loads(_ip("-n", self.namespace(host), "-j", "link", "show", "eth0"))[0]
        neighbour = [self.address(host), "lladdr", link["address"], "dev", self._bridge]
        _ip("neighbour", "replace", *neighbour, "nud", "permanent")
        self.partition(host)

    @contextmanager
    def firewall(self, host: str, source: str, *ports: str) -> Iterator[None]:
        """The host drops connections that another one begins, to these ports or to all."""
        where = ("-m", "multiport", "--dports", ",".join(ports)) if ports else ()
        rule = ("-s", self.address(source), "-p", "tcp", "--syn", *where, "-j", "DROP")
        there = ["ip", "netns", "exec", self.namespace(host), "iptables"]
        subprocess.run([*there, "-A", "INPUT", *rule], check=True)
        try:
            yield
        finally:
            subprocess.run([*there, "-D", "INPUT", *rule], check=True)

    def heal(self, host: str) -> None:
        _ip("link", "set", self._link(host), "up")

    def close(self) -> None:
        for host in self._numbers:
            for gone in (["link", "del", self._link(host)], ["netns", "del", self.namespace(host)]):
                subprocess.run(["ip", *gone], capture_output=True)
        self._numbers.clear()
        subprocess.run(["ip", "link", "del", self._bridge], capture_output=True)

    def _link(self, host: str) -> str:
        return f"tmv{self._index}-{self._numbers[host]}"

    def _address(self, number: int) -> str:
        # The block that is set aside for tests of network devices.
        return f"198.{18 + self._index // 256}.{self._index % 256}.{number}"


def _claim_bridge() -> int:
    """The number of a network that nobody else has: creating its bridge is what claims it."""
    for index in range(512):
        made = subprocess.run(
            ["ip", "link", "add", f"tmbr{index}", "type", "bridge"], capture_output=True
        )
        if made.returncode == 0:
            return index
        if b"exists" not in made.stderr:
            break
    raise RuntimeError(f"no network can be made: {made.stderr.decode()}")


def _ip(*arguments: str) -> str:
    return subprocess.run(["ip", *arguments], check=True, capture_output=True, text=True).stdout
