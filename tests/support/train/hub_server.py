"""A model hub on the loopback with the endpoints that planning and huggingface_hub use."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

REVISION = "0123456789abcdef0123456789abcdef01234567"


@dataclass
class Hub:
    """`models` and `datasets` by name: folders that are served; those that are `gated` need the
    token. `cards`: the metadata of data sets' cards, by name."""

    models: dict[str, Path] = field(default_factory=dict)
    datasets: dict[str, Path] = field(default_factory=dict)
    cards: dict[str, dict[str, Any]] = field(default_factory=dict)
    gated: set[str] = field(default_factory=set)
    token: str = "hf_of_the_test"
    endpoint: str = ""
    asked: list[str] = field(default_factory=list)
    # Of a file's answer only so many bytes come, once: then the connection is cut.
    cut_after: int | None = None


@contextmanager
def serving() -> Iterator[Hub]:
    hub = Hub()
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (Handler,), {"hub": hub}))
    hub.endpoint = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield hub
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


class Handler(BaseHTTPRequestHandler):
    hub: Hub
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self._answer(with_body=True)

    def do_HEAD(self) -> None:
        self._answer(with_body=False)

    def _answer(self, *, with_body: bool) -> None:
        path = unquote(urlsplit(self.path).path)
        self.hub.asked.append(f"{self.command} {path} {self.headers.get('Range', '')}".strip())
        if path.startswith("/api/"):
            kind, _, rest = path.removeprefix("/api/").partition("/")
            return self._info(kind, rest.partition("/revision/")[0], with_body)
        kind = "datasets" if path.startswith("/datasets/") else "models"
        name, _, rest = path.removeprefix("/datasets").strip("/").partition("/resolve/")
        return self._file(kind, name, rest.partition("/")[2], with_body)

    def _folders(self, kind: str) -> dict[str, Path]:
        return self.hub.datasets if kind == "datasets" else self.hub.models

    def _info(self, kind: str, name: str, with_body: bool) -> None:
        folder = self._folders(kind).get(name)
        if folder is None:
            return self._refuse(401, "RepoNotFound")
        files = [
            {"rfilename": one.relative_to(folder).as_posix(), "size": one.stat().st_size}
            for one in _files(folder)
        ]
        info = {"id": name, "sha": REVISION, "siblings": files}
        info |= {"cardData": self.hub.cards.get(name)} if kind == "datasets" else {"modelId": name}
        return self._send(json.dumps(info).encode(), with_body)

    def _is_let_in(self, name: str) -> bool:
        """Refuses who is not."""
        sent = self.headers.get("Authorization")
        if name not in self.hub.gated or sent == f"Bearer {self.hub.token}":
            return True
        self._refuse(403 if sent else 401, "GatedRepo")
        return False

    def _file(self, kind: str, name: str, file: str, with_body: bool) -> None:
        folder = self._folders(kind).get(name)
        if folder is None or not (folder / file).is_file():
            return self._refuse(404, "EntryNotFound" if folder else "RepoNotFound")
        if not self._is_let_in(name):
            return None
        return self._send((folder / file).read_bytes(), with_body)

    def _refuse(self, status: int, code: str) -> None:
        self.send_response(status)
        self.send_header("X-Error-Code", code)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def _send(self, content: bytes, with_body: bool) -> None:
        start = int((self.headers.get("Range") or "bytes=0-")[6:].partition("-")[0])
        self.send_response(206 if start else 200)
        self.send_header("X-Repo-Commit", REVISION)
        self.send_header("ETag", f'"{hashlib.sha256(content).hexdigest()}"')
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content) - start))
        self.end_headers()
        if not with_body:
            return
        if self.hub.cut_after is not None and len(content) - start > self.hub.cut_after:
            self.wfile.write(content[start : start + self.hub.cut_after])
            self.hub.cut_after = None
            self.close_connection = True
            return
        self.wfile.write(content[start:])

    def log_message(self, *_: Any) -> None:
        pass


def _files(folder: Path) -> list[Path]:
    return sorted(file for file in folder.rglob("*") if file.is_file())
