"""Verified checkpoints, copied to this machine as they appear: `checkpoint: {mirror: operator}`.

A checkpoint's folder gets the name that it has on the host once it is complete. Until then it grows
as `.writing-step-…`, from which a later process resumes.
"""

from __future__ import annotations

import asyncio
import errno
import json
import os
import re
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from trainer_runtime.core.files.durable import sync_folder, try_lock, write_atomic
from trainer_runtime.core.files.listing import ListedFile
from trainer_runtime.core.files.manifest import MANIFEST_NAME, read, verify
from trainmaster.errors.errors import HostError, StorageError
from trainmaster.store.disk_space import is_full
from trainmaster.store.reserve import leaves_margin
from trainmaster.sync.mirrored_checkpoints import (
    SKIPPED,
    CheckpointKey,
    copied,
    is_mirrored_here,
    mirror_folder,
    missing,
    skipped_copies,
    standing_keys,
    verified_keys,
    wanted_here,
)
from trainmaster.sync.run_view import RunView, load_view
from trainmaster.sync.workspace import Workspace
from trainmaster.transfers.copies_room import CopiesRoom, CountedSource
from trainmaster.transfers.download import download
from trainmaster.transfers.file_sources import FileSource, HostFiles

MIRROR = "mirror"
_WRITING = ".writing-"
_OLD = ".old-"
_NAME = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,200}")
# A host unreachable for so long after the run's end is given up.
_GIVE_UP_AFTER_S = 7 * 86400.0
_CHECK_EVERY_S = 0.2

Report = Callable[[int, int], None]


class MirrorTransfer:
    """The checkpoints of a run that are to be copied here, as a `transfer.Transfer`."""

    what = MIRROR

    def __init__(self, workspace: Workspace, run_id: str, attempt: int) -> None:
        self.attempt = attempt
        self._workspace = workspace
        self._run_id = run_id

    async def carry_out(self, report: Report) -> None:
        """Copy the newest that is missing; the rest stays due.

        Raises:
            HostError: the host can't be reached, or no room is left here; it is still due.
        """
        await mirror_checkpoints(self._workspace, self._run_id, report=report, most=1)


def due_mirror(workspace: Workspace, view: RunView) -> MirrorTransfer | None:
    """The transfer of a run's checkpoints, where any is due by the local records."""
    if not is_mirrored_here(view.run) or view.run.cleaned:
        return None
    if is_given_up(view):
        return None
    folder = mirror_folder(workspace, view)
    if not missing(folder, view) and not _removed_on_host(folder, view):
        return None
    return MirrorTransfer(workspace, view.run.run_id, max(1, view.attempt))


def is_given_up(view: RunView) -> bool:
    """Whether the run ended so long ago that its host is not asked for checkpoints any more."""
    return view.run.closed and view.now - (view.record.state_t or view.now) > _GIVE_UP_AFTER_S


async def bring_wanted(workspace: Workspace, run: str) -> int:
    """Copy the checkpoints that `wanted_here` names, whatever mirror the run's spec names; the
    number copied. Where another process copies them, waits until they are here.

    Raises:
        HostError: the host can't be reached, or no room is left here.
    """
    came = 0
    while wanted := wanted_here(workspace, load_view(workspace, run)):
        brought = await mirror_checkpoints(workspace, run, only=frozenset(wanted))
        if not brought:
            await asyncio.sleep(_CHECK_EVERY_S)
        came += brought
    return came


async def mirror_checkpoints(
    workspace: Workspace,
    run: str,
    *,
    report: Report = lambda _done, _total: None,
    most: int | None = None,
    only: frozenset[int] | None = None,
) -> int:
    """Copy a run's verified checkpoints that are not here yet, newest first; the number copied.

    `most`: the maximum number; `only`: these steps alone.

    What the host has removed is removed here too, but never the newest. Returns 0 at once where
    another process is copying.

    Raises:
        StateError: `RUN_NOT_FOUND`.
        HostError: the host can't be reached, or no room is left here.
    """
    view = load_view(workspace, run)
    folder = mirror_folder(workspace, view)
    with _storage_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
        lock = try_lock(folder / ".lock")
    if lock is None:
        return 0
    try:
        came = 0
        due = [key for key in missing(folder, view) if only is None or key.step in only]
        for key in due[:most]:
            with _storage_errors(folder):
                came += await _copy(workspace, view, key, report)
        with _storage_errors(folder):
            _prune(folder, view)
        return came
    finally:
        os.close(lock)


def _skip(folder: Path, key: CheckpointKey, reason: str) -> bool:
    skipped = {**skipped_copies(folder), str(key): reason}
    write_atomic(folder / SKIPPED, json.dumps(skipped).encode())
    return False


async def _copy(workspace: Workspace, view: RunView, key: CheckpointKey, report: Report) -> bool:
    """Copy one checkpoint; False where it was removed, or is not valid."""
    folder = mirror_folder(workspace, view)
    room = CopiesRoom(workspace.home, folder)
    host_files = CountedSource(HostFiles(workspace.backend(view.run.host), view.run.run_id), room)
    listed = await host_files.files(f"checkpoints/{key.name}")
    files = {
        item.path.removeprefix(f"checkpoints/{key.name}/"): item
        for item in listed
        if isinstance(item, ListedFile)
    }
    if MANIFEST_NAME not in files or not all(_NAME.fullmatch(name) for name in files):
        return _skip(folder, key, "its folder on the host was removed, or is not a checkpoint's")
    writing = folder / f"{_WRITING}{key.name}"
    writing.mkdir(exist_ok=True)
    _refuse_without_room(writing, sum(item.size_bytes for item in files.values()), room)
    try:
        await _download_all(host_files, files, writing, report)
        problems = await asyncio.to_thread(verify, writing)
    except HostError as error:
        if error.code != "DIGEST_MISMATCH":
            raise
        problems = [error.message]
    if problems or read(writing).attempt != key.attempt:
        shutil.rmtree(writing, ignore_errors=True)
        return _skip(folder, key, "; ".join(problems) or "another attempt has replaced it")
    _put_in_place(writing, folder / key.name)
    return True


def _refuse_without_room(writing: Path, size_bytes: int, room: CopiesRoom) -> None:
    """Raises:
    OSError: `ENOSPC`, the disk would not keep its margin.
    StorageError: `COPIES_FULL`.
    """
    more_bytes = max(0, size_bytes - sum(path.stat().st_size for path in writing.iterdir()))
    room.refuse_beyond(more_bytes)
    if not leaves_margin(writing, more_bytes):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(writing))


async def _download_all(
    host_files: FileSource, files: Mapping[str, ListedFile], writing: Path, report: Report
) -> None:
    total, done = sum(item.size_bytes for item in files.values()), 0

    def arrived(count: int) -> None:
        nonlocal done
        done = min(done + count, total)
        report(done, total)

    for name in sorted(files, key=lambda name: (name == MANIFEST_NAME, name)):
        await download(host_files, files[name], writing / name, arrived)


def _put_in_place(writing: Path, place: Path) -> None:
    sync_folder(writing)
    if place.exists():
        replaced = place.with_name(f"{_OLD}{place.name}")
        shutil.rmtree(replaced, ignore_errors=True)
        place.rename(replaced)
    writing.rename(place)
    sync_folder(place.parent)
    shutil.rmtree(place.with_name(f"{_OLD}{place.name}"), ignore_errors=True)


def _removed_on_host(folder: Path, view: RunView) -> list[Path]:
    """Copies of checkpoints that the host has removed; none while no current one is here."""
    here, standing = copied(folder), standing_keys(view)
    if not set(verified_keys(view)) & here.keys():
        return []
    return [path for key, path in here.items() if key not in standing]


def _prune(folder: Path, view: RunView) -> None:
    """Remove the copies that the host has removed, and their unfinished parts."""
    for path in _removed_on_host(folder, view):
        hidden = path.with_name(f"{_OLD}{path.name}")
        path.rename(hidden)
        shutil.rmtree(hidden, ignore_errors=True)
    names = {f"{_WRITING}{key.name}" for key in verified_keys(view)}
    for leftover in folder.glob(f"{_WRITING}*"):
        if leftover.name not in names:
            shutil.rmtree(leftover, ignore_errors=True)


@contextmanager
def _storage_errors(folder: Path) -> Iterator[None]:
    """Turn a local I/O error into a retryable one: room may become free."""
    try:
        yield
    except StorageError as error:
        raise HostError(error.code, error.message, error.fix, retryable=True) from error
    except OSError as error:
        full = is_full(error)
        raise HostError(
            "DISK_FULL" if full else "ROOT_NOT_WRITABLE",
            f"Checkpoints can't be mirrored into {folder}: {error.strerror or error}.",
            "Free some room." if full else "Make it writable.",
            retryable=True,
        ) from error
