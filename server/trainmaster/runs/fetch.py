"""Downloads a run's files: checkpoints, the final model, logs, anything in its folder.

Mirrored files are copied from the mirror: it is local, outlives the host, and for a run with
secrets holds the only masked copy of a log.
"""

from __future__ import annotations

import asyncio
import errno
import os
import re
import shlex
import shutil
import stat
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

from trainer_runtime.core.files.listing import LeftOut, ListedFile, is_never_fetched
from trainer_runtime.core.files.manifest import MANIFEST_NAME
from trainer_runtime.core.files.names import TakenNames, git_folder, why_unsafe
from trainer_runtime.core.files.private import share
from trainer_runtime.core.protocol.text import shown
from trainer_runtime.core.records import dataclass
from trainmaster.store.reserve import leaves_margin
from trainmaster.sync.refresh import refresh
from trainmaster.sync.run_view import RunView
from trainmaster.sync.workspace import Workspace
from trainmaster.transfers.copies_room import CopiesRoom, CountedSource
from trainmaster.transfers.download import Arrived, download, is_there
from trainmaster.transfers.file_sources import FileSource, HostFiles, MirroredFiles, is_mirrored
from trainmaster.words.answers.runs import FetchAnswer, SkippedFile
from trainmaster.words.errors import HostError, StateError, StorageError, UsageError
from trainmaster.words.paths import Home
from trainmaster.words.settings import read_settings
from trainmaster.words.stages import enter_stage
from trainmaster.words.user_paths import real_path

_FILES_AT_A_TIME = 4
_LONGEST_SHOWN = 200
_MOST_SKIPPED = 50
_MOST_LISTED = 5
_FOLDER_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC

# (bytes downloaded, bytes in all)
OnProgress = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class _Wanted:
    file: ListedFile
    source: FileSource

    @property
    def is_manifest(self) -> bool:
        return self.file.path.endswith(f"/{MANIFEST_NAME}")

    def missing_bytes(self, folder: Path) -> int:
        """The bytes still to come, by the size of the part."""
        target = folder / self.file.path
        if is_there(self.file, target):
            return 0
        part = target.with_name(f".{target.name}.part")
        have = part.stat().st_size if part.is_file() else 0
        return max(0, self.file.size_bytes - have)


async def fetch(
    workspace: Workspace,
    run: str,
    pattern: str,
    folder: Path,
    *,
    bound_s: float | None = None,
    on_progress: OnProgress | None = None,
) -> FetchAnswer:
    """Download a run's files that match `pattern` into `folder`, under the same paths.

    `pattern`: a glob over the run's folder, or `best`, `latest` (checkpoints) or `final`. What was
    downloaded before is skipped, what was interrupted resumes. After `bound_s` it pauses and
    answers `more`.

    Raises:
        StateError: `RUN_NOT_FOUND`, `NO_CHECKPOINT`, `RUN_ENDED` (cleaned, and not mirrored).
        UsageError: `BAD_ARGUMENT` where the pattern means nothing.
        HostError: `DIGEST_MISMATCH`; the host can't be reached and the mirror doesn't have it.
        StorageError: `DISK_FULL`, `COPIES_FULL`, `HOME_BUSY`, `UNSAFE_NAME`: the folder can't take
            it.
    """
    if not pattern.strip("/. "):  # it would mean everything, checkpoints included
        raise _nothing(run, pattern)
    until = None if bound_s is None else time.monotonic() + bound_s
    view = await refresh(workspace, run)
    found, skipped = await _find(workspace, view, _pattern(view, pattern))
    if not found and not skipped:
        raise _nothing(view.run.run_id, pattern)
    room = CopiesRoom(workspace.home, folder)
    found = [replace(wanted, source=CountedSource(wanted.source, room)) for wanted in found]
    with _storage_errors(folder):
        _prepare(folder, found, room)
        whole = await _fetch_all(folder, found, until, _counted(found, on_progress))
    more = len(whole) < len(found)
    return FetchAnswer(
        run_id=view.run.run_id,
        files=len(whole),
        bytes=sum(item.file.size_bytes for item in whole),
        brought=_summary([item.file.path for item in whole]) or None,
        skipped=[SkippedFile(path=item.path, reason=item.reason) for item in skipped],
        folder=str(folder),
        more=True if more else None,
        next_step=_continue_hint(view.run.run_id, pattern, folder) if more else None,
    )


async def fetch_below(
    workspace: Workspace, run: str, pattern: str, folder: str, *, bound_s: float
) -> FetchAnswer:
    """`fetch` for tools: into a folder below the settings' download root, nowhere else.

    Raises:
        UsageError: `BAD_ARGUMENT` for a folder that lies elsewhere; and as `fetch`.
    """
    target = folder_below_downloads(workspace, folder or workspace.control.run(run).run_id)
    return await fetch(workspace, run, pattern, target, bound_s=bound_s, on_progress=_enter_stage)


def folder_below_downloads(workspace: Workspace, folder: str) -> Path:
    """The path of a folder below the settings' download root, whether it exists or not.

    Raises:
        UsageError: `BAD_ARGUMENT`, it lies elsewhere, or among Trainmaster's own files.
    """
    root = read_settings(workspace.home).download_root(workspace.home)
    target = Path(os.path.normpath(root / folder))
    if not target.is_relative_to(root) or not real_path(target).is_relative_to(real_path(root)):
        raise UsageError(
            "BAD_ARGUMENT",
            f"{folder!r} does not lie below {root}, where files may be brought.",
            f"Name a folder below it, or change `downloads` in {workspace.home.settings}.",
            field="folder",
        )
    if _is_among_our_own(real_path(target), workspace.home):
        raise UsageError(
            "BAD_ARGUMENT",
            f"{target} is where Trainmaster keeps its own files, settings and records.",
            f"Name another folder; by default files come below {workspace.home.downloads}.",
            field="folder",
        )
    return target


def _enter_stage(done: int, total: int) -> None:
    enter_stage(f"{done >> 20} of {total >> 20} MiB")


def _is_among_our_own(target: Path, home: Home) -> bool:
    """A host chooses the names of its files: none may become the settings that bind tools."""
    root, downloads = real_path(home.root), real_path(home.downloads)
    within = target.is_relative_to(root) and not target.is_relative_to(downloads)
    return within or root.is_relative_to(target)


def _summary(paths: Sequence[str]) -> list[str]:
    """The paths, or where there are many, the folders up to two levels deep."""
    if len(paths) > _MOST_LISTED:
        folders = ("/".join(path.split("/")[:-1][:2]) for path in paths)
        paths = [f"{folder}/" if folder else "." for folder in folders]
    shown_paths = list(dict.fromkeys(paths))
    left_out = len(shown_paths) - _MOST_LISTED
    return [*shown_paths[:_MOST_LISTED], f"and {left_out} more"] if left_out > 0 else shown_paths


def _nothing(run_id: str, pattern: str) -> UsageError:
    return UsageError(
        "BAD_ARGUMENT",
        f"{pattern!r} means nothing in the folder of {run_id}.",
        "Use for example best, latest, final, 'checkpoints/*' or 'attempts/*/train.log'.",
        field="pattern",
    )


def _continue_hint(run_id: str, pattern: str, folder: Path) -> str:
    command = shlex.join(["trainmaster", "fetch", run_id, pattern, str(folder)])
    return f"Call the same again to continue. A shell has no such limit: {command}"


def _pattern(view: RunView, pattern: str) -> str:
    if pattern not in ("best", "latest"):
        return pattern
    step = view.index.best if pattern == "best" else view.index.resume_from
    paths = {entry.step: entry.path for entry in view.index.entries}
    if step is None:
        raise StateError(
            "NO_CHECKPOINT",
            f"Run {view.run.run_id} has no verified checkpoint that is {pattern}.",
            f"`trainmaster checkpoints {view.run.run_id}` lists those that it has.",
        )
    return re.sub(r"([*?[])", r"[\1]", paths[step])


async def _find(
    workspace: Workspace, view: RunView, pattern: str
) -> tuple[list[_Wanted], list[LeftOut]]:
    """The files to download and their sources, manifests last; and what is left out."""
    run = view.run
    mirror = MirroredFiles(workspace.mirror.of(run.run_id, run.placement).root)
    here = {item.path: item for item in await mirror.files(pattern) if isinstance(item, ListedFile)}
    skipped: list[LeftOut] = []
    remote: FileSource = mirror
    try:
        remote = HostFiles(workspace.backend(run.host), run.run_id)
        there = await remote.files(pattern)
    except HostError as error:
        if not here:
            raise
        unasked = f"{run.host} could not be asked ({error.code}): only the mirror was searched"
        there = [LeftOut(".", unasked)]
    if run.cleaned and not there and not here:
        raise StateError(
            "RUN_ENDED",
            f"Run {run.run_id} was cleaned, and its mirror has nothing that {pattern!r} means.",
            "Launch runs with `checkpoint: {mirror: operator}` to have their checkpoints here.",
        )
    chosen: dict[str, _Wanted] = {}
    for item in [*here.values(), *there]:
        problem = _problem(item, here, bool(run.config.secrets))
        if problem is not None:
            skipped += [] if problem in skipped[-1:] else [problem]
        elif isinstance(item, ListedFile) and not _is_nearer(chosen.get(item.path), item):
            source = mirror if here.get(item.path) is item else remote
            chosen[item.path] = _Wanted(item, source)
    in_order = sorted(chosen.values(), key=lambda item: (item.is_manifest, item.file.path))
    taken, kept = TakenNames(), []
    for wanted in in_order:
        reason = taken.why_taken(wanted.file.path)
        if reason is None:
            kept.append(wanted)
        else:
            skipped.append(LeftOut(wanted.file.path, reason))
    return kept, skipped[:_MOST_SKIPPED]


def _problem(
    item: ListedFile | LeftOut, here: Mapping[str, ListedFile], has_secrets: bool
) -> LeftOut | None:
    """Why a file is not downloaded; None where it is."""
    if isinstance(item, LeftOut):
        return LeftOut(shown(item.path.encode(errors="replace")), shown(item.reason.encode()))
    unsafe = why_unsafe(item.path)
    if unsafe is not None:
        named = git_folder(item.path) or item.path
        return LeftOut(ascii(named)[1:-1][:_LONGEST_SHOWN], unsafe)
    if is_never_fetched(item.path):
        return LeftOut(item.path, "is never fetched")
    if has_secrets and is_mirrored(item.path) and item.path not in here:
        return LeftOut(item.path, "is not mirrored yet, and only the mirror's copy is masked")
    return None


def _is_nearer(mirrored: _Wanted | None, there: ListedFile) -> bool:
    """Whether the mirror's file can stand in for the one on the host."""
    if mirrored is None:
        return False
    here = mirrored.file
    is_same = here.sha256 is not None and here.sha256 == there.sha256
    return is_mirrored(there.path) or (is_same and here.size_bytes == there.size_bytes)


def _counted(found: Sequence[_Wanted], on_progress: OnProgress | None) -> Arrived:
    total, done = sum(item.file.size_bytes for item in found), 0

    def arrived(count: int) -> None:
        nonlocal done
        done += count
        if on_progress is not None:
            on_progress(min(done, total), total)

    return arrived


def _prepare(folder: Path, found: Sequence[_Wanted], room: CopiesRoom) -> None:
    needed = sum(item.missing_bytes(folder) for item in found)
    room.refuse_beyond(needed)
    if not folder.is_dir():
        folder.mkdir(parents=True, exist_ok=True)
        share(folder)
    if needed and not leaves_margin(folder, needed):
        free = shutil.disk_usage(folder).free
        raise _full(folder, f"{needed / 2**30:.2f} GiB are to come, {free / 2**30:.2f} are free")


async def _fetch_all(
    folder: Path, found: Sequence[_Wanted], until: float | None, arrived: Arrived
) -> list[_Wanted]:
    """The complete files, at the end or when the time was over."""
    waiting, whole = deque(found), []

    async def work() -> None:
        while waiting:
            item = waiting.popleft()
            with _place(folder, item.file.path.split("/")) as target:
                await download(item.source, item.file, target, arrived)
            whole.append(item)

    workers = [asyncio.create_task(work()) for _ in range(_FILES_AT_A_TIME)]
    left_s = None if until is None else max(0.0, until - time.monotonic())
    try:
        with suppress(TimeoutError):
            async with asyncio.timeout(left_s):
                await asyncio.gather(*workers)
    finally:
        for worker in workers:
            worker.cancel()
        await asyncio.gather(*workers, return_exceptions=True)
    return whole


@contextmanager
def _place(folder: Path, parts: Sequence[str]) -> Iterator[Path]:
    """The target of a file, its folders created.

    The path goes through the opened folder: a link that takes the place of one of the folders
    meanwhile leads nowhere.
    """
    descriptor = os.open(folder, _FOLDER_FLAGS & ~os.O_NOFOLLOW)
    try:
        for depth, part in enumerate(parts[:-1], start=1):
            inner = _open_inner(descriptor, part, folder / "/".join(parts[:depth]), folder)
            os.close(descriptor)
            descriptor = inner
        target = Path(f"/proc/self/fd/{descriptor}", parts[-1])
        if target.is_dir() and not target.is_symlink():
            raise StorageError(
                "UNSAFE_NAME",
                f"{folder.joinpath(*parts)} is a folder, and a file of that name is to be fetched.",
                "Fetch into another folder.",
            )
        yield target
    finally:
        os.close(descriptor)


def _open_inner(above: int, name: str, shown_path: Path, folder: Path) -> int:
    """A folder in an opened one, created where it is missing."""
    with suppress(FileExistsError):
        os.mkdir(name, dir_fd=above)
        _share_folder(above, name)
    try:
        return os.open(name, _FOLDER_FLAGS, dir_fd=above)
    except OSError:
        if not stat.S_ISLNK(os.stat(name, dir_fd=above, follow_symlinks=False).st_mode):
            raise
        raise StorageError(
            "UNSAFE_NAME",
            f"{shown_path} is a symbolic link; what is fetched stays below {folder}.",
            "Remove the link, or fetch into another folder.",
        ) from None


def _share_folder(above: int, name: str) -> None:
    descriptor = os.open(name, _FOLDER_FLAGS, dir_fd=above)
    try:
        share(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def _storage_errors(folder: Path) -> Iterator[None]:
    """Turn an I/O error into an error with a remedy."""
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise _full(folder, "its disk has no room left") from error
        raise StorageError(
            "ROOT_NOT_WRITABLE",
            f"{folder} can't be written: {error.strerror or error}.",
            "Make it writable, or fetch into another folder.",
        ) from error


def _full(folder: Path, reason: str) -> StorageError:
    return StorageError(
        "DISK_FULL",
        f"{folder} can't take it: {reason}.",
        "Free some room, or fetch less, or elsewhere; what was fetched is kept, and resumed from.",
        retryable=True,
    )
