"""A server of ours in a process of its own, with few descriptors, and what it uses."""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import dataclass
from http.client import HTTPConnection
from pathlib import Path

import httpx
from support.mcp.http_server import BEGIN

DESCRIPTORS = 1024
_BOUND_S = 60.0
_ANSWER_S = 20.0
HEADERS = {"accept": "application/json, text/event-stream", "content-type": "application/json"}
# A header that never ends.
HALF_A_REQUEST = b"POST /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Slow: "
_MODERN = "2026-07-28"
_META = {
    "io.modelcontextprotocol/protocolVersion": _MODERN,
    "io.modelcontextprotocol/clientCapabilities": {},
    "io.modelcontextprotocol/clientInfo": {"name": "bare", "version": "1"},
}


@dataclass(frozen=True)
class ServedProcess:
    """`url`: as it was printed; `log`: its stderr."""

    process: subprocess.Popen[str]
    url: str
    log: Path

    @property
    def port(self) -> int:
        port = httpx.URL(self.url).port
        assert port is not None
        return port

    def descriptors(self) -> int:
        return len(os.listdir(f"/proc/{self.process.pid}/fd"))

    def memory_mib(self) -> float:
        """Resident."""
        pages = int(Path(f"/proc/{self.process.pid}/statm").read_text().split()[1])
        return pages * resource.getpagesize() / 2**20

    def overview_s(self, token: str) -> float:
        """How long a user of ours waits for `overview`."""
        began = time.monotonic()
        assert '"isError":true' not in self.call(token, "overview", {})
        return time.monotonic() - began

    def call(
        self, token: str, tool: str, arguments: Mapping[str, object], within_s: float = _ANSWER_S
    ) -> str:
        """The answer to a call on a connection of its own, which is closed beyond the time.

        Raises:
            TimeoutError
        """
        headers = {
            **HEADERS,
            "Authorization": f"Bearer {token}",
            "mcp-protocol-version": _MODERN,
            "mcp-method": "tools/call",
            "mcp-name": tool,
        }
        params = {"name": tool, "arguments": arguments, "_meta": _META}
        call = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
        with closing(HTTPConnection("127.0.0.1", self.port, timeout=within_s)) as connection:
            connection.request("POST", "/mcp", json.dumps(call), headers)
            answer = connection.getresponse()
            text = answer.read().decode()
        assert answer.status == 200, text
        return text

    @contextmanager
    def overviews_meanwhile(self, token: str) -> Iterator[list[float]]:
        """Within, a user asks for `overview` again and again: what each call took, in seconds.
        Each has to be answered."""
        waits_s: list[float] = []
        halt = threading.Event()

        def ask() -> None:
            while not halt.is_set():
                waits_s.append(self.overview_s(token))

        with ThreadPoolExecutor(1) as asking:
            during = asking.submit(ask)
            try:
                yield waits_s
            finally:
                halt.set()
            during.result()

    def open_session(self, http: httpx.Client, token: str) -> httpx.Response:
        """Begin a session of the protocols that have them."""
        return http.post(self.url, json=BEGIN, headers={"Authorization": f"Bearer {token}"})

    def ended_s(self) -> float:
        """How long it takes to end once it gets SIGTERM."""
        began = time.monotonic()
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(_BOUND_S)
        return time.monotonic() - began


@contextmanager
def served_process(
    words: Sequence[str],
    environment: Mapping[str, str],
    folder: Path,
    descriptors: int = DESCRIPTORS,
) -> Iterator[ServedProcess]:
    """`trainmaster WORDS`, a server whose first line is its address."""
    log = folder / "stderr"
    limit = f'ulimit -n {descriptors}; exec "$@"'
    command = ["bash", "-c", limit, "-", sys.executable, "-m", "trainmaster", *words]
    with log.open("wb") as stderr:
        process = subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=stderr,
            text=True,
            env={**os.environ, **environment},
            cwd=folder,
        )
    try:
        assert process.stdout is not None
        url = process.stdout.readline().strip()
        assert url.startswith("http"), log.read_text()
        yield ServedProcess(process, url, log)
    finally:
        process.kill()
        process.wait()


def until(condition: Callable[[], bool], bound_s: float = _BOUND_S) -> None:
    """Wait for it."""
    end = time.monotonic() + bound_s
    while not condition():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.05)


@contextmanager
def half_open_crowd(port: int, count: int, text: bytes) -> Iterator[subprocess.Popen[str]]:
    """A process that opens so many connections, sends `text` on each and keeps them; it opens those
    again that the server ends."""
    program = Path(__file__).with_name("crowd_program.py")
    process = subprocess.Popen(
        [sys.executable, str(program), str(port), str(count), text.decode("latin-1")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline().startswith("opened")
        yield process
    finally:
        process.kill()
        process.wait()
