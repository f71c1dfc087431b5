"""A stand-in for a provider's API on loopback, with planned faults and real instances."""

from __future__ import annotations

import json
import os
import re
import socket
import threading
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, ClassVar, Literal, TypeVar
from urllib.parse import parse_qsl, unquote, urlsplit

import pytest
from support.providers.described import Description
from support.providers.instances import Modes, RentableInstance

Kind = Literal["offers", "create", "list", "instance", "end", "keys", "volumes", "volume"]
How = Literal["lost", "status", "garbage", "hang"]
Own = TypeVar("Own", bound="Site")
ACCOUNT_KEY = "account-key-3141592653"


@dataclass(frozen=True)
class Fault:
    """A fault of a request: instead of its effect, or `after` it.

    `lost`: the connection ends without a reply; `status`: an error status; `garbage`: a reply that
    is not JSON; `hang`: no reply until the site closes. `call` runs at that point, and may kill the
    client.
    """

    how: How = "lost"
    after: bool = False
    status: int = 500
    retry_after: str | None = None
    message: str = "planned by the test"
    call: Callable[[], None] = lambda: None


@dataclass(frozen=True)
class Asked:
    """A request. `ids`: the groups of its path's pattern."""

    kind: Kind
    method: str
    path: str
    query: Mapping[str, str]
    body: Any
    key: str
    ids: tuple[str, ...]


@dataclass(frozen=True)
class Answer:
    """`afterwards` runs after the reply was sent."""

    status: int
    body: Any = None
    afterwards: Callable[[], None] = lambda: None


class Site(ABC):
    """The base of all stand-ins; serves from its creation until `close`. `has_sshd`: whether its
    instances answer SSH.

    `asked`: all requests for known resources, in order. `violations`: disagreements with the
    provider's description. `modes`: behaviour of instances and offers. `spoilt`: by kind, a
    function that corrupts the reply. `instances`: by id, ended ones included.
    """

    # method, pattern of the path below the API's base, kind, name of the method that answers
    ROUTES: ClassVar[tuple[tuple[str, str, Kind, str], ...]] = ()
    PREFIX: ClassVar[str] = ""

    def __init__(self, described: Description | None, has_sshd: bool) -> None:
        if has_sshd and os.geteuid() != 0:
            pytest.skip("instances have accounts and namespaces of their own: that takes root")
        self.asked: list[Asked] = []
        self.violations: list[str] = []
        self.instances: dict[str, RentableInstance] = {}
        self.modes = Modes(has_sshd=has_sshd)
        self.spoilt: dict[Kind, Callable[[Any], Any]] = {}
        self.account_key = ACCOUNT_KEY
        self._described = described
        self._faults: dict[Kind, list[Fault | None]] = defaultdict(list)
        self._lock = threading.RLock()
        self._closing = threading.Event()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self._server.daemon_threads = True
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(0.02,), daemon=True
        )
        self._thread.start()

    def __enter__(self: Own) -> Own:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
        assert kind is not None or not self.violations, self.violations

    @property
    def url(self) -> str:
        """The value for the setting `cloud_urls`."""
        return f"http://127.0.0.1:{self._server.server_address[1]}{self.PREFIX}"

    def fail(self, kind: Kind, fault: Fault, *, nth: int = 1, times: int = 1) -> None:
        """Make `times` requests of a kind fail, starting with the `nth` from now."""
        with self._lock:
            plan = self._faults[kind]
            plan += [None] * (nth - 1 + times - len(plan))
            plan[nth - 1 : nth - 1 + times] = [fault] * times

    def count(self, kind: Kind) -> int:
        """The number of requests of a kind."""
        return sum(1 for asked in self.asked if asked.kind == kind)

    @property
    def alive(self) -> list[RentableInstance]:
        """The instances that have not ended."""
        return [instance for instance in [*self.instances.values()] if not instance.ended]

    def close(self) -> None:
        """Stop the server and all instances. Idempotent."""
        self._closing.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
        for instance in [*self.instances.values()]:  # the last requests may still be answered
            instance.end()

    @abstractmethod
    def problem(self, status: int, message: str) -> Answer:
        """A refusal in the provider's format."""

    def is_authorized(self, asked: Asked) -> bool:
        """The account's key may do anything, an instance's key may read and end that instance."""
        if asked.key == self.account_key:
            return True
        instances = [*self.instances.values()]
        own = [instance.provider_id for instance in instances if instance.own_key == asked.key]
        return (
            bool(asked.key and own) and asked.kind in ("end", "instance") and asked.ids == (own[0],)
        )

    def respond(self, handler: BaseHTTPRequestHandler) -> None:
        """Serve one request: planned fault, effect, reply."""
        asked, act = self._understood(handler)
        if asked is None or act is None:
            return self._send(handler, None, self.problem(404, "no such resource"))
        with self._lock:
            self.asked.append(asked)
            planned = self._faults[asked.kind]
            fault = planned.pop(0) if planned else None
        if fault is not None and not fault.after:
            return self._fail(handler, fault)
        answer = self._answered(asked, act)
        if fault is not None:
            self._fail(handler, fault)
        else:
            self._send(handler, asked, answer)
        answer.afterwards()
        return None

    def _understood(
        self, handler: BaseHTTPRequestHandler
    ) -> tuple[Asked | None, Callable[[Asked], Answer] | None]:
        parts = urlsplit(handler.path)
        content = handler.rfile.read(int(handler.headers.get("Content-Length") or 0))
        body = json.loads(content) if content else None
        path = parts.path.removeprefix(self.PREFIX)
        query = dict(parse_qsl(parts.query, keep_blank_values=True))
        key = (handler.headers.get("Authorization") or "").removeprefix("Bearer ")
        for method, pattern, kind, name in self.ROUTES:
            found = re.fullmatch(pattern, path)
            if found and method == handler.command:
                ids = tuple(map(unquote, found.groups()))
                return Asked(kind, method, path, query, body, key, ids), getattr(self, name)
        self.violations.append(f"{handler.command} {path}: no such resource")
        return None, None

    def _answered(self, asked: Asked, act: Callable[[Asked], Answer]) -> Answer:
        if not self.is_authorized(asked):
            return self.problem(401, "unauthorized")
        if self._described is not None:
            wrong = self._described.of_request(asked.method, asked.path, asked.query, asked.body)
            if wrong:
                self.violations += wrong
                return self.problem(422, "; ".join(wrong))
        with self._lock:
            return act(asked)

    def _fail(self, handler: BaseHTTPRequestHandler, fault: Fault) -> None:
        fault.call()
        if fault.how == "hang":
            self._closing.wait(120)
        if fault.how in ("hang", "lost"):
            handler.close_connection = True
            with suppress(OSError):
                handler.connection.shutdown(socket.SHUT_RDWR)
        elif fault.how == "garbage":
            _write(handler, 200, b"<html>it works</html>")
        else:
            body = self.problem(fault.status, fault.message).body
            _write(handler, fault.status, json.dumps(body).encode(), fault.retry_after)

    def _send(self, handler: BaseHTTPRequestHandler, asked: Asked | None, answer: Answer) -> None:
        if self._described is not None and asked is not None:
            self.violations += self._described.of_reply(
                asked.method, asked.path, answer.status, answer.body
            )
        spoil = self.spoilt.get(asked.kind) if asked is not None else None
        body = spoil(answer.body) if spoil is not None else answer.body
        _write(handler, answer.status, b"" if body is None else json.dumps(body).encode())


def _handler(site: Site) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def do_GET(self) -> None:
            with suppress(ConnectionError):
                site.respond(self)

        do_POST = do_PUT = do_DELETE = do_GET  # noqa: N815

        def log_message(self, format: str, *arguments: Any) -> None:
            return

    return Handler


def _write(
    handler: BaseHTTPRequestHandler, status: int, content: bytes, retry_after: str | None = None
) -> None:
    handler.send_response(status)
    handler.send_header("Content-Type", "application/json")
    if retry_after is not None:
        handler.send_header("Retry-After", retry_after)
    if status != 204:
        handler.send_header("Content-Length", str(len(content)))
    handler.end_headers()
    handler.wfile.write(content)
