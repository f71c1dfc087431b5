"""Kaggle as a place where a run stays: one kernel a run, session after session."""

from __future__ import annotations

import asyncio
import posixpath
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from trainer_runtime.core.files import listing
from trainer_runtime.core.files.checkpoint_check import CheckpointCheck, check_checkpoints
from trainer_runtime.core.files.listing import LeftOut, ListedFile
from trainer_runtime.core.kaggle.session_order import RUN_FOLDER
from trainer_runtime.core.protocol.command import command
from trainer_runtime.core.protocol.desired import Desired
from trainmaster.backends.capabilities import InputReceiver, RunFiles
from trainmaster.backends.follower import Follower
from trainmaster.backends.hosts.tree_files import TreeFile
from trainmaster.backends.hosts.trees import OnTreeProgress, TreeProgress
from trainmaster.backends.kaggle.client import Kaggle, SourcesLeftOutError
from trainmaster.backends.kaggle.datasets import Datasets
from trainmaster.backends.kaggle.follower import KernelFollower
from trainmaster.backends.kaggle.machine_types import WORKING, documented
from trainmaster.backends.kaggle.mounts import Mounting
from trainmaster.backends.kaggle.outputs import Outputs
from trainmaster.backends.kaggle.placement import KagglePlacement
from trainmaster.backends.kaggle.push import Pusher
from trainmaster.backends.kaggle.sessions import DATA_SET, with_output
from trainmaster.calls.work_thread import in_thread
from trainmaster.errors.errors import HostError
from trainmaster.home.paths import Home
from trainmaster.settings.settings import KaggleSettings, read_settings
from trainmaster.store import secret_values
from trainmaster.store.control import Control
from trainmaster.store.control.runs import KAGGLE_LAUNCHER
from trainmaster.store.mirror import Mirror

if TYPE_CHECKING:
    from trainmaster.plan.facts import HostFacts

_PLACEMENT = 1  # its folder travels from session to session


class KaggleBackend(InputReceiver, RunFiles):
    """A session can't be sent or asked anything once it is pushed: what happens in it comes by its
    log, its files by its output. Alerts are sent from here, and no session is given an address."""

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
        self._cache = f"/tmp/trainmaster-{control.instances.home_id()}"
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

    async def withdraw_secrets(self, run_id: str) -> bool:
        return await self._mounting.remove_secrets(run_id)

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
        yield KernelFollower(self._kaggle, self._records, self._stay, self._clock)

    async def has_shards(self, fingerprint: str) -> bool:
        return self._mounting.has(f"data/{fingerprint}")

    async def send(
        self,
        files: Sequence[TreeFile],
        destination: str,
        *,
        whole: bool = False,
        mark: bool = False,
        on_progress: OnTreeProgress | None = None,
    ) -> None:
        """Upload files for the cache of all later sessions, as a private data set."""
        place = posixpath.relpath(destination, self._cache)
        await self._mounting.put(place, files, mark=mark)
        if on_progress is not None:
            size = sum(file.size_bytes for file in files)
            on_progress(TreeProgress(size, size))

    async def refuse_upload(self, run_id: str, attempt: int, message: str) -> None:
        """No session can begin: the run fails for it; see `between.py`."""
        await asyncio.to_thread(self._stay(run_id).refuse, message)

    async def verify_checkpoints(self, run_id: str) -> Sequence[CheckpointCheck]:
        outputs = self._outputs(run_id, "read its checkpoints")
        for name in await outputs.names():
            if name.startswith("checkpoints/"):
                await outputs.fetch(name)
        return await in_thread(check_checkpoints, self._stay(run_id).output / "checkpoints")

    async def list_files(self, run_id: str, pattern: str) -> Sequence[ListedFile | LeftOut]:
        outputs = self._outputs(run_id, "give out files")
        for name in await outputs.names():
            if listing.is_meant(pattern, name):
                await outputs.fetch(name)
        root = self._stay(run_id).output
        return await asyncio.to_thread(lambda: list(listing.list_files(root, pattern)))

    async def read_file(self, run_id: str, path: str, offset: int, limit: int) -> bytes:
        try:
            with (self._stay(run_id).output / path).open("rb") as file:
                file.seek(offset)
                return file.read(limit)
        except FileNotFoundError:
            return b""

    async def chunk_digest(self, run_id: str, path: str, chunk: int, size_bytes: int) -> str | None:
        root = self._stay(run_id).output
        return await asyncio.to_thread(listing.chunk_digest, root, path, chunk, size_bytes)

    async def contents(self, run_id: str) -> list[str]:
        """What can be removed of the run: only local files, nothing of the kernel's."""
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

    def _stay(self, run_id: str) -> KagglePlacement:
        return KagglePlacement(run_id, self._home.kaggle(run_id))

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
                f"Ask again once it has ended: {command('status', run_id)} shows its deadline, and "
                "a run that has completed ends its session within minutes.",
                retryable=True,
            )
        return Outputs(self._kaggle, kept.ref, self._stay(run_id).output)
