"""What the stand-in for Kaggle answers, request by request."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, unquote, urlsplit

if TYPE_CHECKING:
    from support.kaggle.sessions import Session
    from support.kaggle.site import KaggleSite

OWNER = "somebody"
_STREAM = re.compile(r"/api/v1/kernels/logs/stream/([^/]+/[^/]+)")
_REFRESH = "2026-11-28T00:00:00Z"
_SILENCE_S = 120.0
_SHORTEST_TITLE, _LONGEST_TITLE = 5, 50


class Refusal(Exception):
    """An answer that is none of success."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class Handler(BaseHTTPRequestHandler):
    """Requests reach it as a proxy: with whole addresses."""

    protocol_version = "HTTP/1.1"
    site: KaggleSite

    def log_message(self, format: str, *arguments: Any) -> None:
        return

    def do_POST(self) -> None:
        kind = self._path.rsplit("/", 1)[-1]
        body = json.loads(self._body() or b"{}")
        self.site.bodies.append((kind, body))
        self._serve(kind, lambda: self._answer(_CALLS[kind](self.site, body)))

    def do_GET(self) -> None:
        stream = _STREAM.fullmatch(self._path)
        if stream:
            self._serve("LogStream", lambda: self._stream(stream[1]))
        else:
            self._serve("Download", self._download, authorized=False)

    def do_PUT(self) -> None:
        data = self._body()
        self._serve("Upload", lambda: self._upload(data), authorized=False)

    @property
    def _path(self) -> str:
        return urlsplit(self.path).path

    @property
    def _is_allowed(self) -> bool:
        return self.site.allows(self.headers.get("Authorization", ""))

    def _body(self) -> bytes:
        return self.rfile.read(int(self.headers.get("Content-Length") or 0))

    def _serve(self, kind: str, serve: Callable[[], None], *, authorized: bool = True) -> None:
        fault = self.site.take_fault(kind)
        self._cut = fault == "cut"
        if fault == "hang":
            self.site.closing.wait(_SILENCE_S)
        if fault in ("hang", "drop"):
            return self._break_off()
        if fault == "garbage":
            return self._send(200, b"<html>not what you asked for</html>", "text/html")
        if fault in ("429", "500", "403"):
            error = {"code": int(fault), "message": f"planned status {fault}"}
            return self._send(int(fault), json.dumps(error).encode())
        self._lost = fault == "lose"
        try:
            if authorized and kind != "IntrospectToken" and not self._is_allowed:
                raise Refusal(401, "Unauthenticated")
            serve()
        except Refusal as refusal:
            error = {"code": refusal.status, "message": str(refusal)}
            self._send(refusal.status, json.dumps(error).encode())
        except (BrokenPipeError, ConnectionResetError):
            self.close_connection = True

    def _answer(self, found: Any) -> None:
        self._send(200, json.dumps(found).encode())

    def _send(
        self, status: int, data: bytes, kind: str = "application/json", **headers: str
    ) -> None:
        if getattr(self, "_lost", False):
            self._break_off()
            return
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(data)))
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        if getattr(self, "_cut", False):
            self.wfile.write(data[: len(data) // 2])
            self._break_off()
            return
        self.wfile.write(data)

    def _break_off(self) -> None:
        self.close_connection = True
        self.wfile.flush()

    def _download(self) -> None:
        path = Path(unquote(self._path).removeprefix("/output"))
        if not path.is_file():
            raise Refusal(404, "Not found")
        data, tag = path.read_bytes(), f'"{path.stat().st_mtime_ns}"'
        wanted = re.fullmatch(r"bytes=(\d+)-", self.headers.get("Range", ""))
        if wanted and self.headers.get("If-Range") == tag:
            begin = int(wanted[1])
            place = f"bytes {begin}-{len(data) - 1}/{len(data)}"
            binary = "application/octet-stream"
            self._send(206, data[begin:], binary, Content_Range=place, ETag=tag)
            return
        self._send(200, data, "application/octet-stream", ETag=tag, Accept_Ranges="bytes")

    def _upload(self, data: bytes) -> None:
        upload = self.site.upload(self._path.rsplit("/", 1)[-1])
        if upload is None:
            raise Refusal(404, "No such upload")
        path, length = upload["path"], int(upload["contentLength"])
        wanted = self.headers.get("Content-Range", "")
        if wanted.startswith("bytes */"):
            have = path.stat().st_size if path.exists() else 0
            if have == length:
                self._send(200, b"")
                return
            headers = {"Range": f"bytes=0-{have - 1}"} if have else {}
            self._send(308, b"", **headers)
            return
        begin = int(re.match(r"bytes (\d+)-", wanted)[1]) if wanted else 0
        with path.open("r+b" if path.exists() else "wb") as file:
            file.seek(begin)
            file.write(data)
        self._send(200, b"")

    def _stream(self, ref: str) -> None:
        kernel = self.site.kernels.get(ref)
        if kernel is None:
            raise Refusal(403, "Permission 'kernels.get' was denied")
        session = kernel.newest
        if session.is_over:
            whole = [piece for event in session.events for piece in _pieces(self.site, event)]
            self._send(200, json.dumps(whole).encode(), "text/plain")
            return
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Connection", "close")
        self.end_headers()
        for number, event in enumerate(_living(self.site, session), 1):
            for piece in _pieces(self.site, event):
                self._send_event(json.dumps(piece))
            if number == (self.site.cut_stream_after or 0) * (session.cuts + 1):
                session.cuts += 1
                self._break_off()
                return
        if not self.site.closing.is_set():
            self._send_event("END_OF_LOG")
        self._break_off()

    def _send_event(self, text: str) -> None:
        self.wfile.write(f"data: {text}\n\n".encode())
        self.wfile.flush()


def _living(site: KaggleSite, session: Session) -> Iterator[dict[str, Any]]:
    """The events of a session as they come, until it is over."""
    sent = 0
    while not (session.is_over and sent == len(session.events)):
        if site.closing.is_set():
            return
        with session.changed:
            if not session.is_over and len(session.events) == sent:
                session.changed.wait(0.5)
        new = session.events[sent:]
        sent += len(new)
        yield from new


def _pieces(site: KaggleSite, event: dict[str, Any]) -> list[dict[str, Any]]:
    data = event["data"].rstrip("\n") if site.strip_ends else event["data"]
    step = site.split_events_at or max(1, len(data))
    return [{**event, "data": data[at : at + step]} for at in range(0, max(1, len(data)), step)]


def _newest(site: KaggleSite, body: dict[str, Any]) -> Session:
    kernel = site.kernels.get(f"{body['userName']}/{body['kernelSlug']}")
    if kernel is None:
        raise Refusal(403, "Permission 'kernels.get' was denied")
    return kernel.newest


def _save_kernel(site: KaggleSite, body: dict[str, Any]) -> Any:
    if body.get("enableGpu") and site.spent_s() >= site.quota_total_s:
        raise Refusal(400, "Maximum weekly GPU quota reached.")
    title = body["newTitle"]
    if body["slug"] != f"{OWNER}/{title}" or not _LONGEST_TITLE >= len(title) >= _SHORTEST_TITLE:
        raise Refusal(400, f"The title {title} does not make the slug {body['slug']}.")
    return site.push(body)


def _status(site: KaggleSite, body: dict[str, Any]) -> Any:
    session = _newest(site, body)
    return {"status": session.state, "failureMessage": session.message}


def _outputs(site: KaggleSite, body: dict[str, Any]) -> Any:
    output = _newest(site, body).output
    files = sorted(file for file in output.rglob("*") if file.is_file()) if output else []
    begin = int(body.get("pageToken") or 0)
    size = min(site.page_size, body.get("pageSize") or 20)
    listed = [
        {
            "fileName": str(file.relative_to(output)),
            "url": f"http://files.invalid/output{quote(str(file))}",
        }
        for file in files[begin : begin + size]
    ]
    odd = [{"fileName": name, "url": "http://files.invalid/odd"} for name in site.odd_outputs]
    following = {"nextPageToken": str(begin + size)} if begin + size < len(files) else {}
    return {"files": odd + listed, "log": "", **following}


def _kernel(site: KaggleSite, body: dict[str, Any]) -> Any:
    _newest(site, body)
    kernel = site.kernels[f"{body['userName']}/{body['kernelSlug']}"]
    metadata = {"ref": kernel.slug, "title": kernel.title}
    return {
        "metadata": {**metadata, "currentVersionNumber": len(kernel.versions)},
        "blob": {"source": kernel.source, "slug": body["kernelSlug"]},
    }


def _kernels(site: KaggleSite, body: dict[str, Any]) -> Any:
    kernels = [*site.kernels.values()]  # others may push meanwhile
    found = [kernel for kernel in kernels if body.get("search", "") in kernel.slug]
    return {"kernels": [{"ref": kernel.slug, "title": kernel.title} for kernel in found]}


def _quota(site: KaggleSite, body: dict[str, Any]) -> Any:
    gpu = {"timeUsed": f"{site.spent_s():.3f}s", "totalTimeAllowed": f"{site.quota_total_s:.0f}s"}
    return {"quotaRefreshTime": _REFRESH, "gpuQuota": gpu, "tpuQuota": gpu}


def _introspect(site: KaggleSite, body: dict[str, Any]) -> Any:
    is_good = site.allows(f"Bearer {body.get('token')}")
    return {"active": is_good, "username": OWNER} if is_good else {"active": False}


def _dataset_status(site: KaggleSite, body: dict[str, Any]) -> Any:
    dataset = site.datasets.get(f"{body['ownerSlug']}/{body['datasetSlug']}")
    if dataset is None:
        raise Refusal(403, "Permission 'datasets.get' was denied")
    dataset.polls -= 1
    return {"status": "READY" if dataset.polls < 0 else "BLOBS_RECEIVED"}


def _create_dataset(site: KaggleSite, body: dict[str, Any]) -> Any:
    ref = f"{body['ownerSlug']}/{body['slug']}"
    if ref in site.datasets:
        return {"status": "error", "error": f"The requested title {body['title']} is in use."}
    return site.save_dataset(ref, body["title"], body)


def _create_version(site: KaggleSite, body: dict[str, Any]) -> Any:
    ref = f"{body['ownerSlug']}/{body['datasetSlug']}"
    if ref not in site.datasets:
        raise Refusal(404, "No such data set")
    return site.save_dataset(ref, "", body["body"])


def _datasets(site: KaggleSite, body: dict[str, Any]) -> Any:
    found = [one for one in [*site.datasets.values()] if body.get("search", "") in one.ref]
    begin = int(body.get("pageToken") or 0)
    size = min(site.page_size, body.get("pageSize") or 20)
    listed = [{"ref": one.ref, "title": one.title} for one in found[begin : begin + size]]
    following = {"nextPageToken": str(begin + size)} if begin + size < len(found) else {}
    return {"datasets": listed, **following}


def _delete_dataset(site: KaggleSite, body: dict[str, Any]) -> Any:
    if site.datasets.pop(f"{body['ownerSlug']}/{body['datasetSlug']}", None) is None:
        raise Refusal(404, "No such data set")
    return {}


_CALLS: dict[str, Callable[[KaggleSite, dict[str, Any]], Any]] = {
    "SaveKernel": _save_kernel,
    "GetKernelSessionStatus": _status,
    "ListKernelSessionOutput": _outputs,
    "GetKernel": _kernel,
    "ListKernels": _kernels,
    "GetAcceleratorQuotaStatistics": _quota,
    "IntrospectToken": _introspect,
    "StartBlobUpload": lambda site, body: site.begin_upload(body),
    "CreateDataset": _create_dataset,
    "CreateDatasetVersion": _create_version,
    "GetDatasetStatus": _dataset_status,
    "ListDatasets": _datasets,
    "DeleteDataset": _delete_dataset,
}
