"""Fetches node 0's checkpoints and cache entries, each by way of a folder beside it.

What this node's own ranks have written of a checkpoint is taken from here, where it has the bytes
that the manifest lists.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path, PurePosixPath
from types import MappingProxyType

from trainer_runtime.core.files.durable import sync_folder
from trainer_runtime.core.files.manifest import MANIFEST_NAME, ManifestError, parse, verify
from trainer_runtime.core.files.parts import find_own_file
from trainer_runtime.host.files.layout import RunFolder
from trainer_runtime.host.nodes.link import Link, LinkError

_ANSWERS_S = 120.0
_FETCHING = ".fetching-"
NO_FILES: Mapping[str, Path] = MappingProxyType({})

Report = Callable[[str], None]


def fetch_checkpoint(run: RunFolder, link: Link, candidates: tuple[int, ...], say: Report) -> None:
    """Have the first candidate that verifies here, byte by byte, and no other one.

    Raises:
        OSError: it can't be fetched, or none verifies.
    """
    for step in candidates:
        folder = run.checkpoint(step)
        listed = _ask(link, {"checkpoint": step})
        if not listed:
            continue
        manifest = _manifest(link, listed)
        if not _has(folder, manifest) or verify(folder):
            own = _own_files(run, step, manifest)
            size = sum(size for path, size in listed.items() if path not in own)
            kept = f"; {len(own)} files are here already" if own else ""
            say(f"checkpoint: fetching the one of step {step}, {size} bytes{kept}")
            _fetch(link, folder, listed, own)
        if problems := verify(folder):
            say(f"checkpoint: that of step {step} is not whole: {problems[0]}")
            continue
        _remove_others(run.checkpoints, folder)
        return
    if candidates:
        raise OSError(f"none of the checkpoints {', '.join(map(str, candidates))} verifies")


def fetch_entry(link: Link, cache: Path, entry: str, say: Report) -> None:
    """Have an entry of node 0's cache in this one, where it has it.

    Raises:
        OSError: it can't be fetched.
    """
    listed = _ask(link, {"cache": entry})
    folder = cache / entry
    if not listed or _has_sizes(folder, listed):
        return
    say(f"data: fetching {entry} from the first node, {sum(listed.values())} bytes")
    _fetch(link, folder, listed)


def _ask(link: Link, request: Mapping[str, object]) -> dict[str, int]:
    """The files of what is asked for with their sizes; none where node 0 lacks it."""
    link.send(request)
    answer = link.receive(_ANSWERS_S)
    if answer is None:
        raise LinkError("the first node is silent")
    return {file.text("path"): file.integer("size") for file in answer.sections("files")}


def _manifest(link: Link, listed: Mapping[str, int]) -> bytes:
    if MANIFEST_NAME not in listed:
        return b""
    pieces: list[bytes] = []
    link.send({"file": MANIFEST_NAME})
    link.receive_file(lambda piece: pieces.append(bytes(piece)))
    return b"".join(pieces)


def _has(folder: Path, manifest: bytes) -> bool:
    """Whether this node has the same manifest, as on a shared disk."""
    own = folder / MANIFEST_NAME
    return own.is_file() and own.read_bytes() == manifest


def _own_files(run: RunFolder, step: int, manifest: bytes) -> dict[str, Path]:
    """The files of a checkpoint that this node's ranks have written, by their paths in it."""
    try:
        entries = parse(manifest).files
    except ManifestError:
        return {}
    own_files = {entry.path: find_own_file(run.checkpoints, step, entry) for entry in entries}
    return {path: own for path, own in own_files.items() if own is not None}


def _has_sizes(folder: Path, listed: Mapping[str, int]) -> bool:
    try:
        return all((folder / path).stat().st_size == size for path, size in listed.items())
    except OSError:
        return False


def _fetch(
    link: Link, folder: Path, listed: Mapping[str, int], own: Mapping[str, Path] = NO_FILES
) -> None:
    folder.parent.mkdir(parents=True, exist_ok=True)
    fetching = folder.with_name(f"{_FETCHING}{folder.name}-{os.getpid()}")
    shutil.rmtree(fetching, ignore_errors=True)
    try:
        for path in listed:
            _refuse_unsafe(path)
            if path in own:
                _take(own[path], fetching / path)
            else:
                _fetch_file(link, path, fetching / path)
        sync_folder(fetching)
        shutil.rmtree(folder, ignore_errors=True)
        fetching.rename(folder)
        sync_folder(folder.parent)
    finally:
        shutil.rmtree(fetching, ignore_errors=True)


def _take(own: Path, place: Path) -> None:
    place.parent.mkdir(parents=True, exist_ok=True)
    try:
        os.link(own, place)
    except OSError:  # a disk without links
        shutil.copyfile(own, place)


def _fetch_file(link: Link, path: str, place: Path) -> None:
    place.parent.mkdir(parents=True, exist_ok=True)
    link.send({"file": path})
    with place.open("wb") as file:
        link.receive_file(file.write)
        file.flush()
        os.fsync(file.fileno())


def _refuse_unsafe(path: str) -> None:
    parts = PurePosixPath(path).parts
    if not parts or path.startswith("/") or ".." in parts:
        raise OSError(f"the first node names {path!r}, which is not inside its folder")


def _remove_others(checkpoints: Path, kept: Path) -> None:
    """Older ones that were fetched before: only rank 0's node keeps what policy wants."""
    for folder in checkpoints.glob("step-*"):
        if folder != kept:
            shutil.rmtree(folder, ignore_errors=True)
