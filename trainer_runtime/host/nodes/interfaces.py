"""The addresses of this machine's network interfaces."""

from __future__ import annotations

import fcntl
import socket
import struct
from collections.abc import Mapping

_ADDRESS_OF_INTERFACE = 0x8915  # SIOCGIFADDR
_LONGEST_NAME = 15


def own_addresses() -> Mapping[str, str]:
    """The IPv4 address of each interface that has one, by the interface's name."""
    addresses = {}
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        for _, name in socket.if_nameindex():
            request = struct.pack("256s", name.encode()[:_LONGEST_NAME])
            try:
                answer = fcntl.ioctl(any_socket.fileno(), _ADDRESS_OF_INTERFACE, request)
            except OSError:
                continue  # it has none
            addresses[name] = socket.inet_ntoa(answer[20:24])
    return addresses


def interface_of(address: str) -> str | None:
    """The interface that has this address; None where none has."""
    named = (name for name, own in own_addresses().items() if own == address)
    return next(named, None)
