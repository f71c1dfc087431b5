"""Uploads a folder that an attempt waits for: wheels, a model, a tokenizer.

The folder lies in the cache that the host's runs share, under a name derived from its files, with
`.complete` in it once all of them are there.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from trainer_runtime.core.files.protected import (
    ProtectedError,
    names_credentials,
    refuse_protected,
)
from trainer_runtime.core.protocol.states import AttemptState, DesiredState
from trainmaster.backends import InputReceiver
from trainmaster.backends.hosts.tree_files import TreeFile, file_at
from trainmaster.errors.errors import PlanError
from trainmaster.home.paths import Home
from trainmaster.store.run import Run
from trainmaster.sync.run_view import RunView
from trainmaster.sync.transfer_progress import finished_attempt
from trainmaster.sync.workspace import Workspace
from trainmaster.transfers.file_set import file_set

Report = Callable[[int, int], None]
# Inputs whose links are followed out of their folder.
_FOLLOWED = ("model", "tokenizer")
_UNSAFE = re.compile(r"[^A-Za-z0-9_-]+")


@dataclass(frozen=True, slots=True)
class FolderToSend:
    """`what` it is, in one word; `here` and `there`: the local folder and the one on the host;
    `listed`: lists its files as they are now; `digest`: theirs when the plan was made."""

    what: str
    here: str
    there: str
    digest: str
    listed: Callable[[], Sequence[TreeFile]]


class FolderUpload:
    """A folder that an attempt of a run waits for, as a `transfer.Transfer`."""

    def __init__(self, workspace: Workspace, run: Run, attempt: int, folder: FolderToSend) -> None:
        self.what = folder.what
        self.attempt = attempt
        self._run_id = run.run_id
        self._receiver = InputReceiver.of(workspace.backend(run.host))
        self._folder = folder

    async def carry_out(self, report: Report) -> None:
        """Send what is missing.

        Raises:
            HostError: the host refuses or can't be reached; what has arrived is kept.
            PlanError: `DATA_MISSING`, `DATA_CHANGED`; the host was notified.
        """
        try:
            files = await asyncio.to_thread(self._listed)
        except PlanError as error:
            await self._receiver.refuse_upload(self._run_id, self.attempt, error.message)
            raise
        await self._receiver.send(
            files,
            self._folder.there,
            mark=True,
            on_progress=lambda progress: report(progress.done_bytes, progress.total_bytes),
        )

    def _listed(self) -> Sequence[TreeFile]:
        what, here = self._folder.what, self._folder.here
        try:
            files = self._folder.listed()
        except OSError as error:
            raise PlanError(
                "DATA_MISSING",
                f"The {what} in {here} can't be read any more: {error.strerror}.",
                "Put it back and launch again.",
            ) from error
        if digest_of(files) != self._folder.digest:
            raise PlanError(
                "DATA_CHANGED",
                f"The {what} in {here} changed since the plan.",
                "Launch again: the plan is made for the current files.",
            )
        return files


def due_inputs(workspace: Workspace, view: RunView) -> list[FolderUpload]:
    """The model and tokenizer that the newest attempt waits for, where not finished."""
    due = []
    for item in view.run.config.inputs:
        here = item.source
        attempt = awaiting_attempt(workspace, view, item.what) if here else None
        if attempt is not None and here is not None:
            names = [name for name, _ in item.files]
            listed = _lister(workspace.home, item.what, here, names)
            folder = FolderToSend(item.what, here, item.folder, item.listing or "", listed)
            due.append(FolderUpload(workspace, view.run, attempt, folder))
    return due


def wants_inputs(run: Run) -> bool:
    """Whether a model or tokenizer has to be sent for a run at all."""
    return any(item.source for item in run.config.inputs)


def awaiting_attempt(workspace: Workspace, view: RunView, what: str) -> int | None:
    """The number of the newest attempt where it waits for a kind of transfer; contacts no host."""
    run, current, sessions = view.run, view.record.current, view.sessions
    if view.ended or view.desired.state is DesiredState.STOPPED:
        return None
    if sessions is not None and sessions.files_travel:
        if not sessions.lacks_data:
            return None
    elif current is not None and current.state is not AttemptState.STARTING:
        return None
    attempt = view.awaited_attempt
    return None if finished_attempt(workspace.home, run.run_id, what) >= attempt else attempt


def files_at(folder: Path, names: Sequence[str], home: Home) -> list[TreeFile]:
    """Files of a model's folder by their names in it; a link is followed, as the hub's cache uses
    them.

    Raises:
        OSError: one can't be read, or holds keys or settings.
    """
    files = []
    for name in sorted(names):
        real = Path(os.path.realpath(folder / name))
        refuse_protected(real, home.private_roots)
        if names_credentials(real):
            raise ProtectedError(real)
        files.append(file_at(real, name, real.lstat()))
    return files


def digest_of(files: Sequence[TreeFile]) -> str:
    """A digest of these files' names, sizes and modification times."""
    rows = [[file.name, file.size_bytes, file.modified_ns] for file in files]
    return hashlib.sha256(json.dumps(rows).encode()).hexdigest()[:32]


def plain_name(name: str, otherwise: str) -> str:
    """A name as part of a folder's name in the cache; `otherwise`: where nothing of it is left."""
    return _UNSAFE.sub("-", name).strip("-")[:60] or otherwise


def _lister(
    home: Home, what: str, here: str, names: Sequence[str]
) -> Callable[[], Sequence[TreeFile]]:
    if what in _FOLLOWED:
        return lambda: files_at(Path(here), names, home)
    return lambda: file_set(Path(here), home, names).to_send()
