"""Verified checkpoints, copied to this machine as they appear: `checkpoint: {mirror: operator}`.

A checkpoint's folder comes to lie in the run's mirror under the name that it has on the box, in one
step and whole: until then it grows as `.writing-step-…`, which a kill leaves to go on from.
"""

from __future__ import annotations

import asyncio
import errno
import json
import os
import re
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from trainer_runtime.core.files.durable import sync_folder, try_lock, write_atomic
from trainer_runtime.core.files.listing import ListedFile
from trainer_runtime.core.files.manifest import MANIFEST_NAME, ManifestError, read, verify
from trainmaster.store.run import Run
from trainmaster.sync.run_view import RunView, load_view
from trainmaster.sync.workspace import Workspace
from trainmaster.transfers.download import download
from trainmaster.transfers.file_sources import BoxFiles
from trainmaster.words.errors import HostError

MIRROR = "mirror"
OPERATOR = "operator"
_WRITING = ".writing-"
_OLD = ".old-"
_SKIPPED = ".skipped.json"
_NAME = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,200}")
# Whoever has not come through to the box for so long after the run's end will hardly do so.
_GIVE_UP_AFTER_S = 7 * 86400.0
_LOOK_EVERY_S = 0.2

Report = Callable[[int, int], None]


class MirrorTransfer:
    """The checkpoints of a run that are to come here, as a `transfer.Transfer`."""

    what = MIRROR

    def __init__(self, workspace: Workspace, run_id: str, attempt: int) -> None:
        self.attempt = attempt
        self._workspace = workspace
        self._run_id = run_id

    async def carry_out(self, report: Report) -> None:
        """Bring the newest that is missing; the rest is due again then.

        Raises:
            HostError: the box can't be reached, or there is no room here; it is still due.
        """
        await mirror_checkpoints(self._workspace, self._run_id, report=report, most=1)


def due_mirror(workspace: Workspace, view: RunView) -> MirrorTransfer | None:
    """The transfer of a run's checkpoints, where any is due, as far as is known here."""
    if not is_mirrored_here(view.run) or view.run.cleaned:
        return None
    if view.run.closed and view.now - (view.record.state_t or view.now) > _GIVE_UP_AFTER_S:
        return None
    folder = _folder(workspace, view)
    if not missing(folder, view) and not _outlived(folder, view):
        return None
    return MirrorTransfer(workspace, view.run.run_id, max(1, view.attempt))


def is_mirrored_here(run: Run) -> bool:
    """Whether the run's checkpoints are to come to this machine."""
    return run.config.checkpoint.mirror == OPERATOR


async def bring_wanted(workspace: Workspace, run: str) -> int:
    """Bring the checkpoints that `wanted_here` names, whatever the run's spec says of its mirror;
    how many came. Where another process is at it, waits until they are here.

    Raises:
        HostError: the box can't be reached, or there is no room here.
    """
    came = 0
    while wanted := wanted_here(workspace, load_view(workspace, run)):
        brought = await mirror_checkpoints(workspace, run, only=frozenset(wanted))
        if not brought:
            await asyncio.sleep(_LOOK_EVERY_S)
        came += brought
    return came


def wanted_here(workspace: Workspace, view: RunView) -> list[int]:
    """The steps without which a run's box can't go without a loss, and that are not here: its
    newest verified checkpoint, and its best one."""
    kept = {view.index.resume_from, view.index.best}
    return [key.step for key in missing(_folder(workspace, view), view) if key.step in kept]


async def mirror_checkpoints(
    workspace: Workspace,
    run: str,
    *,
    report: Report = lambda _done, _total: None,
    most: int | None = None,
    only: frozenset[int] | None = None,
) -> int:
    """Bring a run's verified checkpoints that are not here yet, newest first; how many came.

    `most` of them, of `only` these steps, where that is given.

    What the box has removed is removed here too, but never the newest. Returns 0 at once where
    another process is at it.

    Raises:
        StateError: `RUN_NOT_FOUND`.
        HostError: the box can't be reached, or there is no room here.
    """
    view = load_view(workspace, run)
    folder = _folder(workspace, view)
    with _told(folder):
        folder.mkdir(parents=True, exist_ok=True)
        lock = try_lock(folder / ".lock")
    if lock is None:
        return 0
    try:
        came = 0
        due = [key for key in missing(folder, view) if only is None or key.step in only]
        for key in due[:most]:
            with _told(folder):
                came += await _bring(workspace, view, key, report)
        with _told(folder):
            _prune(folder, view)
        return came
    finally:
        os.close(lock)


def mirrored_step(workspace: Workspace, view: RunView) -> int | None:
    """The newest checkpoint that is whole in its second place; None where there is none."""
    if not is_mirrored_here(view.run):
        return view.record.mirrored_step
    here = _here(_folder(workspace, view))
    standing = [key.step for key in _verified(view) if key in here]
    return max(standing or [key.step for key in here], default=None)


def missing(folder: Path, view: RunView) -> list[_Key]:
    """The verified checkpoints that are not in the mirror's `folder`, newest first."""
    here, skipped = _here(folder), _skipped(folder)
    found = [key for key in _verified(view) if key not in here and str(key) not in skipped]
    return sorted(found, reverse=True)


@dataclass(frozen=True, slots=True, order=True)
class _Key:
    """A checkpoint; a later attempt may have saved the same step anew."""

    step: int
    attempt: int

    def __str__(self) -> str:
        return f"{self.step}/{self.attempt}"

    @property
    def name(self) -> str:
        return f"step-{self.step:08d}"


def _folder(workspace: Workspace, view: RunView) -> Path:
    return workspace.mirror.of(view.run.run_id, view.run.placement).path("checkpoints")


def _verified(view: RunView) -> list[_Key]:
    return [_Key(entry.step, entry.attempt) for entry in view.index.entries if entry.verified]


def _here(folder: Path) -> dict[_Key, Path]:
    """What is in the mirror; whole, since it comes there in one step."""
    found = {}
    for path in folder.glob("step-*") if folder.is_dir() else ():
        with suppress(ManifestError):
            told = read(path)
            key = _Key(told.step, told.attempt)
            if path.name == key.name:
                found[key] = path
    return found


def _skipped(folder: Path) -> dict[str, str]:
    """Checkpoints that can't be brought, and what is wrong with them on the box."""
    try:
        found: dict[str, str] = json.loads((folder / _SKIPPED).read_bytes())
        return found
    except (OSError, ValueError):
        return {}


def _skip(folder: Path, key: _Key, reason: str) -> bool:
    told = {**_skipped(folder), str(key): reason}
    write_atomic(folder / _SKIPPED, json.dumps(told).encode())
    return False


async def _bring(workspace: Workspace, view: RunView, key: _Key, report: Report) -> bool:
    """Bring one checkpoint; False where it is gone, or not what it should be."""
    folder = _folder(workspace, view)
    box = BoxFiles(workspace.backend(view.run.host), view.run.run_id)
    listed = await box.files(f"checkpoints/{key.name}")
    files = {
        item.path.removeprefix(f"checkpoints/{key.name}/"): item
        for item in listed
        if isinstance(item, ListedFile)
    }
    if MANIFEST_NAME not in files or not all(_NAME.fullmatch(name) for name in files):
        return _skip(folder, key, "its folder on the box is gone, or is no checkpoint's")
    writing = folder / f"{_WRITING}{key.name}"
    writing.mkdir(exist_ok=True)
    try:
        await _download_all(box, files, writing, report)
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


async def _download_all(
    box: BoxFiles, files: Mapping[str, ListedFile], writing: Path, report: Report
) -> None:
    total, done = sum(item.size_bytes for item in files.values()), 0

    def arrived(count: int) -> None:
        nonlocal done
        done = min(done + count, total)
        report(done, total)

    for name in sorted(files, key=lambda name: (name == MANIFEST_NAME, name)):
        await download(box, files[name], writing / name, arrived)


def _put_in_place(writing: Path, place: Path) -> None:
    sync_folder(writing)
    if place.exists():
        replaced = place.with_name(f"{_OLD}{place.name}")
        shutil.rmtree(replaced, ignore_errors=True)
        place.rename(replaced)
    writing.rename(place)
    sync_folder(place.parent)
    shutil.rmtree(place.with_name(f"{_OLD}{place.name}"), ignore_errors=True)


def _outlived(folder: Path, view: RunView) -> list[Path]:
    """What no longer stands on the box; nothing, until something that does is here."""
    here, standing = _here(folder), set(_verified(view))
    if not standing & here.keys():
        return []
    return [path for key, path in here.items() if key not in standing]


def _prune(folder: Path, view: RunView) -> None:
    """Remove what has outlived its like on the box, and the halves of such."""
    for path in _outlived(folder, view):
        hidden = path.with_name(f"{_OLD}{path.name}")
        path.rename(hidden)
        shutil.rmtree(hidden, ignore_errors=True)
    names = {f"{_WRITING}{key.name}" for key in _verified(view)}
    for leftover in folder.glob(f"{_WRITING}*"):
        if leftover.name not in names:
            shutil.rmtree(leftover, ignore_errors=True)


@contextmanager
def _told(folder: Path) -> Iterator[None]:
    """What this machine refuses is to be tried again: room comes and goes."""
    try:
        yield
    except OSError as error:
        is_full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        raise HostError(
            "DISK_FULL" if is_full else "ROOT_NOT_WRITABLE",
            f"Checkpoints can't be mirrored into {folder}: {error.strerror or error}.",
            "Free some room." if is_full else "Make it writable.",
            retryable=True,
        ) from error
