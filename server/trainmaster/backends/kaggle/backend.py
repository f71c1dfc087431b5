"""Kaggle as a place where a run stays: one kernel a run, session after session."""

from __future__ import annotations

import asyncio
import posixpath
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trainer_runtime.core.files import listing
from trainer_runtime.core.files.corpus import AskedSource, Listing
from trainer_runtime.core.files.listing import ListedFile
from trainer_runtime.core.kaggle.session_order import RUN_FOLDER
from trainer_runtime.core.protocol.desired import Desired
from trainmaster.backends.follower import Follower
from trainmaster.backends.hosts.tree_files import TreeFile
from trainmaster.backends.hosts.trees import OnTreeProgress, TreeProgress
from trainmaster.backends.kaggle.client import Kaggle, SourcesLeftOutError
from trainmaster.backends.kaggle.datasets import Datasets
from trainmaster.backends.kaggle.follower import KernelFollower
from trainmaster.backends.kaggle.machine_types import WORKING, documented
from trainmaster.backends.kaggle.mounts import Mounting
from trainmaster.backends.kaggle.outputs import Outputs
from trainmaster.backends.kaggle.placement import Stay
from trainmaster.backends.kaggle.push import Pusher
from trainmaster.backends.kaggle.sessions import DATA_SET, with_output
from trainmaster.store import secret_values
from trainmaster.store.control import Control
from trainmaster.store.control.runs import KAGGLE_LAUNCHER
from trainmaster.store.mirror import Mirror
from trainmaster.words.errors import HostError
from trainmaster.words.paths import Home
from trainmaster.words.settings import KaggleSettings, read_settings

if TYPE_CHECKING:
    from trainmaster.plan.facts import HostFacts

_PLACEMENT = 1  # its folder travels from session to session


class KaggleBackend:
    """Nothing can be asked of a session, and nothing told it, once it is pushed: what it says comes
    by its log, what it has by its output."""

    name = "kaggle"
    launcher_name = KAGGLE_LAUNCHER

    def __init__(
        self,
        home: Home,
        control: Control,
        kaggle: Kaggle,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._home = home
        self._records = control.kaggle
        # A session's machine is new each time: any name will do, and one of the home's own keeps
        # apart those who share a machine, as tests do.
        self._cache = f"/tmp/trainmaster-{control.boxes.home_id()}"
        self._kaggle = kaggle
        self._clock = clock
        self._mirror = Mirror(home.mirror)
        self._pusher = Pusher(kaggle, self._records, self._settings, clock)
        self._mounting = Mounting(Datasets(home, kaggle), self._records)

    async def facts(self, python: str | None) -> HostFacts:
        settings = self._settings()
        if settings.session_hours * 60 <= settings.margin_minutes:
            raise HostError(
                "UNSUPPORTED",
                f"Sessions of {settings.session_hours:g} hours with a margin of "
                f"{settings.margin_minutes:g} minutes leave no time to train.",
                f"Raise kaggle.session_hours or lower kaggle.margin_minutes in "
                f"{self._home.settings}.",
            )
        return documented(settings, await self._pusher.quota(), self._cache, self._clock())

    async def folder(self, run_id: str) -> str:
        return f"{WORKING}/{RUN_FOLDER}"

    async def place(
        self, run_id: str, files: Mapping[str, bytes], executable: frozenset[str]
    ) -> None:
        await self._pusher.refuse_taken_slug(run_id)
        await asyncio.to_thread(self._stay(run_id).place, files)

    async def request(self, run_id: str, desired: Desired) -> None:
        self._stay(run_id).request(desired)

    async def deliver_secrets(
        self, run_id: str, generation: int, values: Mapping[str, str]
    ) -> None:
        await self._mounting.put_secrets(run_id, generation, values)

    async def deliver_alerts(self, run_id: str, given: Mapping[str, Any]) -> None:
        """Nothing: a session is never given an address; see `alerting.book`."""

    async def start(self, run_id: str) -> bool:
        """Push the next session where one is due: none is alive, the run isn't over, and the quota
        has room for it."""
        stay = self._stay(run_id)
        mirror = self._mirror.of(run_id, _PLACEMENT)
        try:
            if await self._pusher.push_next(stay, mirror, self._mounting.mounts(stay)):
                return True
        except SourcesLeftOutError as error:
            self._mounting.forget(stay, error.sources)
            raise
        waiting = self._records.waiting(run_id)
        if waiting is None or waiting.reason != DATA_SET or not self._mounting.lacks_secrets(stay):
            return False
        values = secret_values.kept(self._home, run_id, stay.config["secrets"])
        await self.deliver_secrets(run_id, stay.desired.generation, values)
        return await self._pusher.push_next(stay, mirror, self._mounting.mounts(stay))

    @asynccontextmanager
    async def follower(self) -> AsyncIterator[Follower]:
        over = self._mounting.remove_secrets
        yield KernelFollower(self._kaggle, self._records, self._stay, over, self._clock)

    async def examine_source(self, kind: str, target: str, begin: str) -> Mapping[str, Any]:
        raise _unsupported("watch a training that others started", "Attach on a host with a shell.")

    async def look_at_output(self, python: str | None, folder: str) -> Mapping[str, Any]:
        raise _unsupported("look at a folder", "Bring it here and adopt it from `local`.")

    async def list_corpus(self, asked: Sequence[AskedSource]) -> Sequence[Listing]:
        raise _unsupported(
            f"look at data of its own ({asked[0].path})",
            "Name data of this machine, without `host:`: it becomes a private data set.",
            "data.sources",
        )

    async def examine_input(self, kind: str, name: str, revision: str | None) -> Mapping[str, Any]:
        if kind == "cached":
            return {"problem": "a session's cache begins empty"}
        raise _unsupported(
            f"look at a {kind} of its own ({name})",
            "Name a folder of this machine, without `host:`, or one of the hub.",
            "model",
        )

    async def has_shards(self, fingerprint: str) -> bool:
        return self._mounting.has(f"data/{fingerprint}")

    async def try_folder(self, path: str) -> str | None:
        return f"a session reaches no folder but its own, so nothing can be mirrored to {path}"

    async def send(
        self,
        files: Sequence[TreeFile],
        destination: str,
        *,
        whole: bool = False,
        mark: bool = False,
        on_progress: OnTreeProgress | None = None,
    ) -> None:
        """What sessions are to find in their cache, as a private data set, for all to come."""
        place = posixpath.relpath(destination, self._cache)
        await self._mounting.put(place, files, mark=mark)
        if on_progress is not None:
            size = sum(file.size_bytes for file in files)
            on_progress(TreeProgress(size, size))

    async def refuse_upload(self, run_id: str, attempt: int, message: str) -> None:
        """No session can begin: the run fails for it; see `between.py`."""
        await asyncio.to_thread(self._stay(run_id).refuse, message)

    async def verify(self, run_id: str) -> Sequence[Mapping[str, Any]]:
        names = await self._outputs(run_id, "read its checkpoints").names()
        return await self._verify(run_id, [name for name in names if name[:12] == "checkpoints/"])

    async def inspect(
        self, run_id: str, attempt: int, *, allow_py_spy: bool = False
    ) -> Mapping[str, Any]:
        raise _unsupported(
            "be asked for the stacks of its processes",
            f"`trainmaster logs {run_id}` shows what it says; the box looks for stalls by itself.",
        )

    async def files(self, run_id: str, pattern: str) -> Sequence[Mapping[str, Any]]:
        outputs = self._outputs(run_id, "give out files")
        for name in await outputs.names():
            if listing.is_meant(pattern, name):
                await outputs.fetch(name)
        root = self._stay(run_id).output
        found = await asyncio.to_thread(lambda: list(listing.list_files(root, pattern)))
        return [_told(item) for item in found]

    async def read(self, run_id: str, path: str, offset: int, limit: int) -> bytes:
        try:
            with (self._stay(run_id).output / path).open("rb") as file:
                file.seek(offset)
                return file.read(limit)
        except FileNotFoundError:
            return b""

    async def digest(self, run_id: str, path: str, chunk: int, size_bytes: int) -> str | None:
        root = self._stay(run_id).output
        return await asyncio.to_thread(listing.chunk_digest, root, path, chunk, size_bytes)

    async def contents(self, run_id: str) -> list[str]:
        """What of the run can be taken away: nothing of the kernel's, only what lies here."""
        return ["output"] if self._stay(run_id).output.is_dir() else []

    async def disconnect(self) -> None:
        await self._kaggle.close()

    async def remove(self, run_id: str, names: Sequence[str]) -> int:
        self._records.wait_no_more(run_id)
        try:
            await self._mounting.remove_secrets(run_id)
        finally:
            freed = await asyncio.to_thread(self._stay(run_id).remove)
        return freed

    def _settings(self) -> KaggleSettings:
        return read_settings(self._home).kaggle

    def _stay(self, run_id: str) -> Stay:
        return Stay(run_id, self._home.kaggle(run_id))

    def _outputs(self, run_id: str, what: str) -> Outputs:
        """The newest output.

        Raises:
            HostError: `UNSUPPORTED`, there is none yet.
        """
        sessions = self._records.of_run(run_id)
        kept = with_output(sessions)
        if kept is None or sessions[-1].alive:
            raise HostError(
                "UNSUPPORTED",
                f"Kaggle can't {what} before a session has ended.",
                f"Wait for its end: `trainmaster status {run_id}` tells the deadline.",
                retryable=True,
            )
        return Outputs(self._kaggle, kept.ref, self._stay(run_id).output)

    async def _verify(self, run_id: str, names: Sequence[str]) -> list[Mapping[str, Any]]:
        from trainer_runtime.core.files.manifest import verify

        outputs = self._outputs(run_id, "read its checkpoints")
        root = self._stay(run_id).output
        for name in names:
            await outputs.fetch(name)
        folders = sorted({Path(name).parts[1] for name in names})
        return [
            {
                "step": int(folder.rpartition("-")[2]),
                "path": f"checkpoints/{folder}",
                "problems": await asyncio.to_thread(verify, root / "checkpoints" / folder),
            }
            for folder in folders
        ]


def _unsupported(what: str, fix: str, field: str | None = None) -> HostError:
    return HostError("UNSUPPORTED", f"Kaggle can't {what}.", fix, field=field)


def _told(item: ListedFile | listing.LeftOut) -> Mapping[str, Any]:
    if isinstance(item, listing.LeftOut):
        return {"skipped": item.path, "reason": item.reason}
    digests = None if item.sha256 is None else list(item.sha256)
    return {
        "path": item.path,
        "size": item.size_bytes,
        "mtime_ns": item.mtime_ns,
        "sha256": digests,
    }
