"""Under which names the server may be asked, and by which web pages.

A page that a browser loaded can send requests to this machine. Its host's name may even lead here
(DNS rebinding), so a request must name the server as it is known, and come from no foreign page.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from urllib.parse import urlsplit

from starlette.requests import HTTPConnection

from trainmaster.errors.errors import PolicyError
from trainmaster.mcp.http.refusal import Refusal
from trainmaster.settings.server_settings import LOOPBACK


@dataclass(frozen=True, slots=True)
class Names:
    """`hosts`: names or addresses, without ports; `origins`: as browsers send them."""

    hosts: frozenset[str]
    origins: frozenset[str]

    def refuse_others(self, request: HTTPConnection) -> None:
        """Raises: Refusal: 421 for another host, 403 for another origin."""
        host = request.headers.get("host", "")
        if _host_name(host) not in self.hosts:
            raise Refusal(
                421,
                PolicyError(
                    "ORIGIN_REFUSED",
                    f"This server is not known as {host[:200]!r}.",
                    "Use its own URL; its owner names that as `server.url` in the settings.",
                    field="Host",
                ),
            )
        origin = request.headers.get("origin")
        if origin is not None and origin not in self.origins:
            raise Refusal(
                403,
                PolicyError(
                    "ORIGIN_REFUSED",
                    f"Pages of {origin[:200]!r} may send no requests here.",
                    "The server's owner names such pages as `server.origins` in the settings.",
                    field="Origin",
                ),
            )


def known_names(address: str, port: int, url: str | None, origins: Iterable[str]) -> Names:
    """Of a server that listens on `address`, `url` being its public one."""
    hosts = set(LOOPBACK) if address in LOOPBACK else {address}
    own = {
        f"{scheme}://{_bracketed(host)}:{port}" for host in hosts for scheme in ("http", "https")
    }
    if url is not None:
        parts = urlsplit(url)
        hosts.add(str(parts.hostname))
        own.add(f"{parts.scheme}://{parts.netloc}")
    return Names(frozenset(hosts), frozenset({*own, *origins}))


def _host_name(header: str) -> str:
    """The host without its port, in lower case; empty for what is none."""
    try:
        return urlsplit(f"//{header}").hostname or ""
    except ValueError:
        return ""


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host
