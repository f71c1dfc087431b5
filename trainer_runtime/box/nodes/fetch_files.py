"""Fetches node 0's checkpoints and cache entries, each by way of a folder beside it."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path, PurePosixPath

from trainer_runtime.box.files.layout import RunFolder
from trainer_runtime.box.nodes.link import Link, LinkError
from trainer_runtime.core.files.durable import sync_folder
from trainer_runtime.core.files.manifest import MANIFEST_NAME, verify

_ANSWERS_S = 120.0
_FETCHING = ".fetching-"

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
        if not _is_there(link, folder) or verify(folder):
            say(f"checkpoint: fetching the one of step {step}, {sum(listed.values())} bytes")
            _fetch(link, folder, listed)
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


def _is_there(link: Link, folder: Path) -> bool:
    """Whether this node has the same manifest, as on a shared disk."""
    own = folder / MANIFEST_NAME
    if not own.is_file():
        return False
    pieces: list[bytes] = []
    link.send({"file": MANIFEST_NAME})
    link.receive_file(pieces.append)
    return b"".join(pieces) == own.read_bytes()


def _has_sizes(folder: Path, listed: Mapping[str, int]) -> bool:
    try:
        return all((folder / path).stat().st_size == size for path, size in listed.items())
    except OSError:
        return False


def _fetch(link: Link, folder: Path, listed: Mapping[str, int]) -> None:
    folder.parent.mkdir(parents=True, exist_ok=True)
    fetching = folder.with_name(f"{_FETCHING}{folder.name}-{os.getpid()}")
    shutil.rmtree(fetching, ignore_errors=True)
    try:
        for path in listed:
            _refuse_unsafe(path)
            _fetch_file(link, path, fetching / path)
        sync_folder(fetching)
        shutil.rmtree(folder, ignore_errors=True)
        fetching.rename(folder)
        sync_folder(folder.parent)
    finally:
        shutil.rmtree(fetching, ignore_errors=True)


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
