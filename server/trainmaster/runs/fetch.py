"""Downloads a run's files: checkpoints, the final model, logs, anything in its folder.

Mirrored files are copied from the mirror: it is local, outlives the host, and for a run with
secrets holds the only masked copy of a log.
"""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path

from trainer_runtime.core.answers.averaged import FOLDER as AVERAGED
from trainer_runtime.core.files.listing import LeftOut, ListedFile, is_never_fetched
from trainer_runtime.core.files.manifest import MANIFEST_NAME
from trainer_runtime.core.files.names import TakenNames, git_folder, why_unsafe
from trainer_runtime.core.files.private import share
from trainer_runtime.core.protocol.command import command
from trainer_runtime.core.protocol.figures import size_text
from trainer_runtime.core.protocol.text import shown
from trainmaster.answers.runs import FetchAnswer, SkippedFile
from trainmaster.calls.stages import enter_stage
from trainmaster.errors.errors import HostError, StateError, StorageError, UsageError
from trainmaster.runs.download_folder import folder_below_downloads
from trainmaster.store.disk_space import is_full
from trainmaster.store.reserve import leaves_margin
from trainmaster.sync.refresh import refresh
from trainmaster.sync.run_view import RunView
from trainmaster.sync.workspace import Workspace
from trainmaster.transfers.copies_room import CopiesRoom, CountedSource
from trainmaster.transfers.download import Arrived, download, is_there
from trainmaster.transfers.file_sources import FileSource, HostFiles, MirroredFiles, is_mirrored
from trainmaster.transfers.place_below import place_below

NAMED = ("best", "latest", "final", AVERAGED)
_HF_WEIGHTS = re.compile(r"model(-[\d-]+of-\d+)?\.safetensors|pytorch_model(-[\d-]+of-\d+)?\.bin")
_FILES_AT_A_TIME = 4
_LONGEST_SHOWN = 200
_MOST_SKIPPED = 50
_MOST_LISTED = 5

# (bytes downloaded, bytes in all)
OnProgress = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class _Wanted:
    """`path`: where it comes to, below the folder."""

    file: ListedFile
    source: FileSource
    path: str

    @property
    def is_manifest(self) -> bool:
        return self.file.path.endswith(f"/{MANIFEST_NAME}")

    def missing_bytes(self, folder: Path) -> int:
        """The bytes still to come, by the size of the part."""
        target = folder / self.path
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

    `pattern`: a glob over the run's folder, or `best`, `latest` (checkpoints), `final` or
    `averaged`: then `folder` itself becomes the model's folder, and has nothing else in it. What
    was downloaded before is skipped, what was interrupted resumes. After `bound_s` it pauses and
    answers `more`.

    Raises:
        StateError: `RUN_NOT_FOUND`, `NO_CHECKPOINT`, `RUN_ENDED` (cleaned, and not mirrored).
        UsageError: `BAD_ARGUMENT` where the pattern means nothing.
        HostError: `DIGEST_MISMATCH`; the host can't be reached and the mirror doesn't have it.
        StorageError: `DISK_FULL`, `COPIES_FULL`, `HOME_BUSY`, `UNSAFE_NAME`, `FOLDER_NOT_EMPTY`:
            the folder can't take it.
    """
    if not pattern.strip("/. "):  # it would mean everything, checkpoints included
        raise _nothing(run, pattern)
    until = None if bound_s is None else time.monotonic() + bound_s
    view = await refresh(workspace, run)
    inner = _inner_folder(view, pattern)
    sought = pattern if inner is None else re.sub(r"([*?[])", r"[\1]", inner)
    files, skipped = await _find(workspace, view, sought)
    if inner is not None:
        files = [replace(item, path=item.path.removeprefix(f"{inner}/")) for item in files]
    if not files and not skipped:
        raise _nothing(view.run.run_id, pattern) if inner is None else _no(view, pattern)
    room = CopiesRoom(workspace.home, folder)
    files = [replace(wanted, source=CountedSource(wanted.source, room)) for wanted in files]
    with _storage_errors(folder):
        if inner is not None:
            _refuse_other_files(folder, files)
        _prepare(folder, files, room)
        whole = await _fetch_all(folder, files, until, _counted(files, on_progress))
    more = len(whole) < len(files)
    return FetchAnswer(
        run_id=view.run.run_id,
        files=len(whole),
        bytes=sum(item.file.size_bytes for item in whole),
        brought=_summary([item.path for item in whole]) or None,
        skipped=[SkippedFile(path=item.path, reason=item.reason) for item in skipped],
        folder=str(folder),
        form=None if inner is None or more else _form({item.path for item in whole}),
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
    run_id = workspace.control.run(run).run_id
    default = f"{run_id}/{pattern}" if pattern in NAMED else run_id
    target = folder_below_downloads(workspace, folder or default)
    return await fetch(workspace, run, pattern, target, bound_s=bound_s, on_progress=_enter_stage)


def _enter_stage(done: int, total: int) -> None:
    enter_stage(f"{size_text(done)} of {size_text(total)}")


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


def _form(names: set[str]) -> str | None:
    """Who reads a model's folder with files of these names; None where that is not known."""
    if "adapter_config.json" in names:
        return "Hugging Face adapter (PeftModel.from_pretrained reads the folder)"
    if "config.json" in names and any(_HF_WEIGHTS.fullmatch(name) for name in names):
        return "Hugging Face (from_pretrained of transformers reads the folder)"
    return None


def _continue_hint(run_id: str, pattern: str, folder: Path) -> str:
    whole = command("fetch", run_id, pattern, folder, in_shell=True)
    return f"Call the same again to continue. A shell has no such limit: {whole}."


def _inner_folder(view: RunView, pattern: str) -> str | None:
    """The folder of the run that a name of a model means; None for a pattern."""
    if pattern not in NAMED:
        return None
    if pattern in ("final", AVERAGED):
        return pattern
    step = view.index.best if pattern == "best" else view.index.resume_from
    paths = {entry.step: entry.path for entry in view.index.entries}
    if step is None:
        raise _no(view, pattern)
    return paths[step]


def _no(view: RunView, name: str) -> StateError:
    models = {"final": "final model", AVERAGED: "average of checkpoints"}
    what = models.get(name, f"verified checkpoint that is {name}")
    return StateError(
        "NO_CHECKPOINT",
        f"Run {view.run.run_id} has no {what}.",
        f"{command('checkpoints', view.run.run_id)} lists the checkpoints that it has.",
    )


def _refuse_other_files(folder: Path, files: Sequence[_Wanted]) -> None:
    """A model's folder holds one model: files of another would be read with it.

    Raises:
        StorageError: `FOLDER_NOT_EMPTY`.
    """
    ours = {item.path.split("/", 1)[0] for item in files}
    try:
        there = sorted(os.listdir(folder))
    except FileNotFoundError:
        return
    other = [
        name
        for name in there
        if name not in ours
        and not (name.startswith(".") and name[1:].removesuffix(".part") in ours)
    ]
    if other:
        raise StorageError(
            "FOLDER_NOT_EMPTY",
            f"{folder} has files that this model doesn't have, such as {ascii(other[0])[1:-1]}.",
            "Name a folder that is empty or not there; one with an earlier part of the same "
            "download is continued.",
        )


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
            chosen[item.path] = _Wanted(item, source, item.path)
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


def _counted(files: Sequence[_Wanted], on_progress: OnProgress | None) -> Arrived:
    total, done = sum(item.file.size_bytes for item in files), 0

    def arrived(count: int) -> None:
        nonlocal done
        done += count
        if on_progress is not None:
            on_progress(min(done, total), total)

    return arrived


def _prepare(folder: Path, files: Sequence[_Wanted], room: CopiesRoom) -> None:
    needed = sum(item.missing_bytes(folder) for item in files)
    room.refuse_beyond(needed)
    if not folder.is_dir():
        folder.mkdir(parents=True, exist_ok=True)
        share(folder)
    if needed and not leaves_margin(folder, needed):
        free = shutil.disk_usage(folder).free
        raise _full(folder, f"{size_text(needed)} are to come, {size_text(free)} are free")


async def _fetch_all(
    folder: Path, files: Sequence[_Wanted], until: float | None, arrived: Arrived
) -> list[_Wanted]:
    """The complete files, at the end or when the time was over."""
    waiting, whole = deque(files), []

    async def work() -> None:
        while waiting:
            item = waiting.popleft()
            with place_below(folder, item.path.split("/")) as target:
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
def _storage_errors(folder: Path) -> Iterator[None]:
    """Turn an I/O error into an error with a remedy."""
    try:
        yield
    except OSError as error:
        if is_full(error):
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
