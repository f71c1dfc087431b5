"""A stand-in for Kaggle on loopback that its own client talks to, and that goes wrong on demand.

It speaks what kaggle 2.2.4 sends where `KAGGLE_API_ENVIRONMENT=LOCALHOST` and `http_proxy` leads
here. It can't prove queues, quotas, accelerators, real mount paths or Kaggle's own checks.
"""

from __future__ import annotations

import base64
import shutil
import threading
import zipfile
from collections import defaultdict, deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import ThreadingHTTPServer
from pathlib import Path
from typing import Any, Literal

from support.kaggle.api_pages import Handler
from support.kaggle.sessions import Dataset, Kernel, Session, until

# lose: it is done, but the answer never comes; drop: it isn't; hang: silence; cut: half an answer.
Fault = Literal["lose", "drop", "hang", "garbage", "cut", "429", "500", "403"]

OWNER = "somebody"
TOKEN = "KGAT_0123456789abcdef0123456789abcdef"
LEGACY_KEY = "fedcba9876543210fedcba9876543210"
# What every address of a file or an upload begins with; it leads nowhere but through the proxy.
FILES = "http://files.invalid"


@dataclass
class KaggleSite:
    """What a test sets and sees; `asked` counts requests by kind: the names of Kaggle's calls,
    and `LogStream`, `Download`, `Upload`."""

    folder: Path
    port: int = 0
    kernels: dict[str, Kernel] = field(default_factory=dict)
    datasets: dict[str, Dataset] = field(default_factory=dict)
    asked: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    bodies: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    quota_total_s: float = 108_000.0
    quota_used_s: float = 3_600.0
    # A log's stream is cut off after so many events more than the last time; all are sent again.
    cut_stream_after: int | None = None
    # Longer events come in pieces; without their line ends where `strip_ends`.
    split_events_at: int | None = None
    strip_ends: bool = False
    # Inputs are mounted as `datasets/<owner>/<slug>`, `notebooks/<owner>/<slug>`.
    owned_mounts: bool = False
    # How often a new data set says that it is being worked on.
    dataset_polls: int = 1
    page_size: int = 100
    # Names that every list of output files begins with; there is nothing behind them.
    odd_outputs: list[str] = field(default_factory=list)
    closing: threading.Event = field(default_factory=threading.Event)
    lock: threading.RLock = field(default_factory=threading.RLock)
    _faults: dict[str, deque[Fault]] = field(default_factory=lambda: defaultdict(deque))
    _gate: threading.Event = field(default_factory=threading.Event)
    _made: int = 0
    _uploads: dict[str, dict[str, Any]] = field(default_factory=dict)

    @property
    def environment(self) -> dict[str, str]:
        """What lets the client come here, with a token that is good."""
        return {
            "KAGGLE_API_ENVIRONMENT": "LOCALHOST",
            "http_proxy": f"http://127.0.0.1:{self.port}",
            "no_proxy": "",
            "HOME": str(self.folder / "nobody"),
            "KAGGLE_CONFIG_DIR": str(self.folder / "nobody" / "kaggle"),
            "KAGGLE_API_TOKEN": TOKEN,
        }

    def fail(self, kind: str, fault: Fault, times: int = 1) -> None:
        """Let the next requests of a kind go wrong."""
        self._faults[kind].extend([fault] * times)

    def take_fault(self, kind: str) -> Fault | None:
        with self.lock:
            self.asked[kind] += 1
            return self._faults[kind].popleft() if self._faults[kind] else None

    @property
    def open_faults(self) -> list[str]:
        """The kinds that are still to go wrong."""
        return [kind for kind, faults in self._faults.items() if faults]

    def hold_queue(self) -> None:
        """Sessions that are pushed from now on stay QUEUED until `release_queue`."""
        self._gate = threading.Event()

    def release_queue(self) -> None:
        self._gate.set()

    def allows(self, authorization: str) -> bool:
        pair = base64.b64encode(f"{OWNER}:{LEGACY_KEY}".encode()).decode()
        return authorization in (f"Bearer {TOKEN}", f"Basic {pair}")

    def add_foreign_kernel(self, slug: str) -> None:
        """A kernel that somebody made by hand."""
        ref = f"{OWNER}/{slug}"
        self.push({"slug": ref, "newTitle": slug, "text": "print('by hand')\n"})
        self.kernels[ref].newest.join()

    def session(self, slug: str) -> Session:
        """The newest of a kernel, by its slug without the owner."""
        return self.kernels[f"{OWNER}/{slug}"].newest

    def wait_for_event(self, slug: str, text: str, bound_s: float = 120.0) -> None:
        """Wait until the newest session has printed something."""
        session = self.session(slug)
        found = until(
            lambda: any(text in event["data"] for event in session.events) or session.is_over,
            session.changed,
            bound_s,
        )
        assert found, f"{slug} never said {text!r}"

    def push(self, body: dict[str, Any]) -> dict[str, Any]:
        """Make a version and its session; missing sources are reported and left out."""
        ref, mounts, invalid = body["slug"], {}, defaultdict(list)
        with self.lock:
            for name in body.get("kernelDataSources", ()):
                if name not in self.kernels:
                    invalid["invalidKernelSources"].append(name)
                elif place := self.kernels[name].output:
                    mounts[self._mount("notebooks", name)] = place
            for name in body.get("datasetDataSources", ()):
                dataset = self.datasets.get(name)
                if dataset is None or dataset.polls >= 0:  # not ready yet
                    invalid["invalidDatasetSources"].append(name)
                else:
                    mounts[self._mount("datasets", name)] = dataset.versions[-1]
            kernel = self.kernels.get(ref) or Kernel(ref, body["newTitle"])
            number = len(kernel.versions) + 1
            kernel.source = body["text"]
            kernel.versions.append(
                Session(
                    self.folder / "kernels" / ref.replace("/", "_") / str(number),
                    body,
                    mounts=mounts,
                    gate=self._gate,
                    before=kernel.versions[-1] if kernel.versions else None,
                )
            )
            self.kernels[ref] = kernel  # seen only once it has a session
        url = f"https://www.kaggle.com/code/{ref}"
        return {"ref": f"/code/{ref}", "url": url, "versionNumber": number, **invalid}

    def _mount(self, kind: str, ref: str) -> str:
        return f"{kind}/{ref}" if self.owned_mounts else ref.split("/")[1]

    def spent_s(self) -> float:
        """Of the week's quota: what was set, and what sessions with GPUs took."""
        sessions = (one for kernel in [*self.kernels.values()] for one in kernel.versions)
        ran = sum(one.used_s for one in sessions if one.pushed.get("enableGpu"))
        return self.quota_used_s + ran

    def begin_upload(self, body: dict[str, Any]) -> dict[str, Any]:
        with self.lock:
            token = f"upload-{len(self._uploads)}"
            place = self.folder / "uploads" / token
            self._uploads[token] = {"name": body["name"], "path": place, **body}
        return {"token": token, "createUrl": f"{FILES}/upload/{token}"}

    def upload(self, token: str) -> dict[str, Any] | None:
        return self._uploads.get(token)

    def save_dataset(self, ref: str, title: str, body: dict[str, Any]) -> dict[str, Any]:
        """A new data set, or its next version."""
        with self.lock:
            dataset = self.datasets.setdefault(
                ref, Dataset(ref, title, bool(body.get("isPrivate")))
            )
            self._made += 1
            place = self.folder / "datasets" / str(self._made)
            place.mkdir(parents=True)
            for file in body.get("files", ()):
                uploaded = self._uploads[file["token"]]
                assert uploaded["path"].stat().st_size == int(uploaded["contentLength"])
                _lay_down(uploaded["path"], place / uploaded["name"])
            dataset.versions.append(place)
            dataset.polls = self.dataset_polls
        return {"ref": ref, "url": f"https://www.kaggle.com/datasets/{ref}", "status": "ok"}

    def dataset(self, slug: str) -> Path:
        """The files of a data set's newest version."""
        return self.datasets[f"{OWNER}/{slug}"].versions[-1]

    def close(self) -> None:
        self.closing.set()
        for kernel in [*self.kernels.values()]:
            for session in kernel.versions:
                session.close()


@contextmanager
def serving_kaggle(folder: Path) -> Iterator[KaggleSite]:
    """The stand-in as long as the context lasts; whatever its sessions left running is ended."""
    (folder / "nobody").mkdir(parents=True)
    (folder / "uploads").mkdir()
    site = KaggleSite(folder)
    site.release_queue()

    class OfThisSite(Handler):
        pass

    OfThisSite.site = site
    server = ThreadingHTTPServer(("127.0.0.1", 0), OfThisSite)
    server.daemon_threads = True
    site.port = server.server_address[1]
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield site
    finally:
        site.close()
        server.shutdown()
        server.server_close()
        thread.join()


def _lay_down(uploaded: Path, place: Path) -> None:
    """As Kaggle does: an archive becomes a folder of its name."""
    if place.suffix == ".zip":
        with zipfile.ZipFile(uploaded) as archive:
            archive.extractall(place.with_suffix(""))
    else:
        shutil.copyfile(uploaded, place)
