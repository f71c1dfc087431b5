"""Uploads a run's data to its host: texts, or shards that are built here first."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from trainer_runtime.core.files.corpus import Listing, Source, list_source, listing_digest
from trainmaster.backends import InputReceiver
from trainmaster.backends.hosts.runtime_call import runtime_command
from trainmaster.backends.hosts.tree_files import TreeFile, file_at, files_of_folder
from trainmaster.backends.hosts.trees import TreeProgress
from trainmaster.backends.ssh.bounded_output import read_bounded
from trainmaster.errors.errors import HostError, PlanError
from trainmaster.home.paths import Home
from trainmaster.store.run import Run
from trainmaster.sync.run_view import RunView
from trainmaster.sync.transfer_progress import UPLOAD
from trainmaster.sync.workspace import Workspace
from trainmaster.transfers.file_set import real_path_within
from trainmaster.transfers.upload_folder import awaiting_attempt

_HOST_PAUSE_S = 1.0
_TOKEN_BYTES = 2

Report = Callable[[int, int], None]


class Upload:
    """The data that an attempt of a run waits for, as a `transfer.Transfer`.

    Sources lie on the host in `<cache>/sources/<fingerprint>/<source>/…`, with `.complete` once all
    are there; shards in `<cache>/data/<fingerprint>`. Both are shared by runs and survive them.
    """

    what = UPLOAD

    def __init__(self, workspace: Workspace, run: Run, attempt: int) -> None:
        self.attempt = attempt
        self._run_id = run.run_id
        self._home = workspace.home
        self._receiver = InputReceiver.of(workspace.backend(run.host))
        self._data: dict[str, Any] = run.document["data"]

    async def carry_out(self, report: Report) -> None:
        """Send what is missing; nothing where the host has the shards.

        Raises:
            HostError: the host refuses or can't be reached; what has arrived is kept.
            PlanError: `DATA_CHANGED`, `DATA_MISSING`, `DATA_UNUSABLE`; the host was notified.
        """
        if await self._receiver.has_shards(self._data["fingerprint"]):
            return
        try:
            if self._data["prepare"] == "here":
                await self._send_shards(report)
            else:
                await self._send_sources(report)
        except PlanError as error:
            await self._receiver.refuse_upload(self._run_id, self.attempt, error.message)
            raise

    async def _send_sources(self, report: Report) -> None:
        files = await asyncio.to_thread(_listed, self._data)
        folder = f"{self._data['cache_dir']}/sources/{self._data['fingerprint']}"
        await self._receiver.send(files, folder, mark=True, on_progress=_reporting(report))

    async def _send_shards(self, report: Report) -> None:
        await asyncio.to_thread(_listed, self._data)  # raises for changed files
        report(0, _TOKEN_BYTES * int(self._data["upload"]["size_bytes"]))
        shards = await _cut_here(self._home, self._run_id, self._data)
        files = await asyncio.to_thread(files_of_folder, shards)
        folder = f"{self._data['cache_dir']}/data/{self._data['fingerprint']}"
        while not await self._receiver.has_shards(self._data["fingerprint"]):
            await self._receiver.send(files, folder, whole=True, on_progress=_reporting(report))
            # Damaged ones on the host are kept until the preparation has put them away.
            if not await self._receiver.has_shards(self._data["fingerprint"]):
                await asyncio.sleep(_HOST_PAUSE_S)


def wants_upload(run: Run) -> bool:
    """Whether the run's data has to be sent at all."""
    return run.config.data.upload is not None


def due_upload(workspace: Workspace, view: RunView) -> Upload | None:
    """The upload that the newest attempt waits for; contacts no host."""
    attempt = awaiting_attempt(workspace, view, UPLOAD)
    return None if attempt is None else Upload(workspace, view.run, attempt)


def _reporting(report: Report) -> Callable[[TreeProgress], None]:
    return lambda progress: report(progress.done_bytes, progress.total_bytes)


def _listed(data: dict[str, Any]) -> list[TreeFile]:
    """The files to send, each under its source's name.

    Raises:
        PlanError: `DATA_MISSING`, `DATA_CHANGED`: they are not what the plan was made for.
    """
    sources_given = [*data["sources"], *data.get("validation", ())]
    formats = {source["name"]: source["format"] for source in sources_given}
    listings = {
        name: list_source(path, formats[name]) for name, path in data["upload"]["sources"].items()
    }
    for name, listing in listings.items():
        if listing.problem is not None:
            raise PlanError(
                "DATA_MISSING",
                f"Data source {name}, {listing.path}: {listing.problem}.",
                "Put it back and launch again.",
            )
    sources = [Source(name, listing.path, listing.files) for name, listing in listings.items()]
    if listing_digest(sources) != data["upload"]["listing"]:
        raise PlanError(
            "DATA_CHANGED",
            f"The files of {', '.join(source.path for source in sources)} changed since the plan.",
            "Launch again: the plan is made for the current files.",
        )
    return [file for name, listing in listings.items() for file in _files_of(name, listing)]


def _files_of(name: str, listing: Listing) -> list[TreeFile]:
    root = Path(os.path.realpath(listing.path))
    files = []
    for document in listing.files:
        path = root / document.name if listing.is_folder else root
        try:
            real = real_path_within(root, path)
            files.append(file_at(real, f"{name}/{document.name}", real.lstat()))
        except OSError as error:
            raise PlanError(
                "DATA_CHANGED",
                f"{path} can't be read any more: {error.strerror}.",
                "Launch again: the plan is made for the current files.",
            ) from error
    return files


async def _cut_here(home: Home, run_id: str, data: dict[str, Any]) -> Path:
    """The folder of the shards in this machine's own cache, built first where they are missing.

    In a separate process: it keeps a core busy for minutes, and survives a kill of this one.

    Raises:
        PlanError: `DATA_UNUSABLE`, the shards can't be built.
        HostError: the process was ended from outside.
    """
    cache = home.local_root / "cache"
    paths = data["upload"]["sources"]
    here = {
        part: [
            {**source, "path": paths.get(source["name"], source["path"])}
            for source in data.get(part, ())
        ]
        for part in ("sources", "validation")
    }
    local = {**data, **here, "cache_dir": str(cache), "prepare": "box"}
    del local["upload"]
    folder = home.transfer_progress(run_id).with_suffix(".here")
    folder.mkdir(parents=True, exist_ok=True)
    config = folder / "config.json"
    config.write_text(json.dumps({"data": local}))
    process = await asyncio.create_subprocess_exec(
        *runtime_command(sys.executable, "prepare", "--data-only", str(config)),
        cwd=folder,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=2,  # the transfer's log
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        assert process.stderr is not None
        errors = await read_bounded(process.stderr.read, "this machine")
        await process.wait()
    finally:
        if process.returncode is None:
            with suppress(ProcessLookupError):
                process.kill()
    if process.returncode != 0:
        message = errors.decode(errors="replace").strip()[-500:]
        if process.returncode is not None and process.returncode < 0:
            raise HostError(
                "INTERNAL", f"Building the shards was ended: {message}", "Try again.", True
            )
        raise PlanError("DATA_UNUSABLE", message, "Fix what it names, then launch again.")
    return cache / "data" / str(data["fingerprint"])
