"""An in-memory Kaggle: tests script what kernels have done."""

from __future__ import annotations

import base64
import bz2
import io
import re
import tarfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from trainer_runtime.core.decoding import decode_fields
from trainer_runtime.core.kaggle.log_frames import encode_frames
from trainer_runtime.core.kaggle.session_order import ORDER, KernelOrder
from trainmaster.backends.kaggle.client import (
    Kernel,
    KernelPush,
    KernelStatus,
    LogPage,
    Pushed,
    Quota,
    SourcesLeftOutError,
)
from trainmaster.errors.errors import CloudError

OWNER = "somebody"
HOUR_S = 3600.0


@dataclass
class FakeSession:
    """One pushed version; a test sets its state, and writes its log and its output."""

    push: KernelPush
    status: KernelStatus = field(default_factory=lambda: KernelStatus("running"))
    events: list[tuple[str, str]] = field(default_factory=list)
    files: dict[str, bytes] = field(default_factory=dict)

    @property
    def order(self) -> KernelOrder:
        payload = re.search(r'PAYLOAD = """(.*?)"""', self.push.code, re.DOTALL)
        assert payload is not None
        data = bz2.decompress(base64.b85decode("".join(payload[1].split())))
        with tarfile.open(fileobj=io.BytesIO(data)) as packed:
            order = packed.extractfile(ORDER)
            assert order is not None
            return KernelOrder.of(decode_fields(order.read(), ORDER))

    def say(self, line: str) -> None:
        self.events.append(("stdout", f"{line}\n"))

    def emit(self, name: str, at: int, data: bytes, *, keep: bool = True) -> None:
        """Frames of a file; `keep`: it stands in the output so."""
        for line in encode_frames(name, at, data):
            self.say(line)
        if keep:
            self.files[name] = self.files.get(name, b"")[:at] + data

    def end(self, state: str = "complete", message: str | None = None) -> None:
        self.status = KernelStatus(state, message)  # type: ignore[arg-type]


class FakeKaggle:
    """Implements `client.Kaggle`. `lost`: pushes that are taken, and whose answer is lost; `held`:
    pushes that never come through; `refused`: what a push is refused with; `silent`: no log is
    sent; `left_out`: data sets that the next push is taken without."""

    def __init__(self) -> None:
        self.sessions: list[FakeSession] = []
        self.left_s, self.refresh_t = 30 * HOUR_S, 7 * 24 * HOUR_S
        self.lost = self.held = 0
        self.refused: str | None = None
        self.has_foreign_kernel = self.silent = False
        self.left_out: tuple[str, ...] = ()
        self.removed: list[str] = []
        self.asked: list[str] = []

    @property
    def newest(self) -> FakeSession:
        return self.sessions[-1]

    async def account(self) -> str:
        return OWNER

    async def push(self, push: KernelPush) -> Pushed:
        self.asked.append("push")
        if self.left_out:
            self.sessions.append(FakeSession(push))
            error = SourcesLeftOutError("KAGGLE_REFUSED", "Not all sources.", "Check them.")
            error.sources, self.left_out = self.left_out, ()
            raise error
        if self.refused is not None:
            raise CloudError("KAGGLE_REFUSED", self.refused, "Fix it.")
        if self.held:
            self.held -= 1
            raise unreachable()
        self.sessions.append(FakeSession(push))
        if self.lost:
            self.lost -= 1
            raise unreachable()
        ref = f"{OWNER}/{push.slug}"
        return Pushed(ref, len(self.sessions), f"https://kaggle.invalid/{ref}")

    async def status(self, ref: str) -> KernelStatus | None:
        self.asked.append("status")
        if not self.sessions:
            return KernelStatus("complete") if self.has_foreign_kernel else None
        return self.newest.status

    async def kernel(self, ref: str, marker: str) -> Kernel | None:
        if not self.sessions:
            return None
        return Kernel(len(self.sessions), ref, marker in self.newest.push.code)

    async def log(self, ref: str, after: int, wait_s: float) -> LogPage:
        """As the real one's: a stream that has just been opened has nothing yet to give."""
        events = self.newest.events
        over = self.newest.status.state not in ("queued", "running")
        if self.silent and over:
            raise unreachable()
        if wait_s == 0.0 or self.silent:
            return LogPage([], after, False)
        return LogPage(events[after:], len(events), over)

    async def outputs(self, ref: str) -> Sequence[str]:
        return [f"run/{name}" for name in self.newest.files]

    async def fetch_output(self, ref: str, name: str, path: Path) -> None:
        path.write_bytes(self.newest.files[name.removeprefix("run/")])

    async def quota(self) -> Quota:
        self.asked.append("quota")
        return Quota(30 * HOUR_S - self.left_s, 30 * HOUR_S, self.refresh_t)

    async def put_dataset(self, slug: str, title: str, folder: Path) -> str:
        return f"{OWNER}/{slug}"

    async def dataset_state(self, slug: str) -> str | None:
        return None

    async def finished_dataset(self, slug: str) -> str | None:
        return None

    async def datasets(self, search: str) -> Mapping[str, Any]:
        return {}

    async def remove_dataset(self, slug: str) -> None:
        self.removed.append(slug)

    async def close(self) -> None:
        return


def unreachable() -> CloudError:
    return CloudError("KAGGLE_UNREACHABLE", "Kaggle gives no answer.", "Try later.", True)
