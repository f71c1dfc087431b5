"""A real web server on loopback that takes alerts, and misbehaves as a test wants it to."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

# Given the number of the request (from 0): the status to answer with, or None to say nothing.
Behaviour = Callable[[int], int | None]


@dataclass
class Receiver:
    """`asked` holds every body that came, `taken` those that were answered with 200."""

    port: int = 0
    behaviour: Behaviour = lambda _: 200
    asked: list[dict[str, Any]] = field(default_factory=list)
    taken: list[dict[str, Any]] = field(default_factory=list)
    released: threading.Event = field(default_factory=threading.Event)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/hook/very-secret-path"

    def of(self, alert: str) -> list[dict[str, Any]]:
        return [body for body in self.taken if body.get("alert") == alert]


@contextmanager
def receiving(behaviour: Behaviour = lambda _: 200, port: int = 0) -> Iterator[Receiver]:
    """A receiver as long as the context lasts; what it left hanging is let go at the end."""
    receiver, numbering = Receiver(behaviour=behaviour), threading.Lock()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            with numbering:
                number = len(receiver.asked)
                receiver.asked.append(body)
            status = receiver.behaviour(number)
            if status is None:
                receiver.released.wait(60)
                return
            if status == 200:
                receiver.taken.append(body)
            self.send_response(status)
            if status in (301, 302):
                self.send_header("Location", "/elsewhere")
            self.send_header("Content-Length", "2")
            self.end_headers()
            self.wfile.write(b"ok")

        def log_message(self, format: str, *arguments: Any) -> None:
            return

    server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
    server.daemon_threads = True
    receiver.port = server.server_address[1]
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield receiver
    finally:
        receiver.released.set()
        server.shutdown()
        server.server_close()
        thread.join()
