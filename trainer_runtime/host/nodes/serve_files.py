"""Node 0's files that a member may fetch: checkpoints, and what the preparation put into the cache.

A member names a checkpoint's folder or an entry of the cache, never a path of its own.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path, PurePosixPath

from trainer_runtime.core.config import RunConfig
from trainer_runtime.core.files.corpus import SHARDS
from trainer_runtime.core.files.manifest import MANIFEST_NAME, ManifestError
from trainer_runtime.core.files.manifest import read as read_manifest
from trainer_runtime.core.protocol.journal import Record
from trainer_runtime.host.files.configs import newest_config
from trainer_runtime.host.files.layout import RunFolder
from trainer_runtime.host.nodes.link import Link, LinkError, file_size

_IDLE_S = 60.0
# What else lies in a checkpoint's folder is not part of it.
_LAST = (MANIFEST_NAME, "meta.json", ".complete")


def serve_files(run: RunFolder, link: Link) -> None:
    """Answer a member's requests until it ends the connection.

    Raises:
        LinkError: it did so, or is silent.
    """
    root: Path | None = None
    listed: dict[str, int] = {}
    while True:
        request = link.receive(_IDLE_S)
        if request is None:
            raise LinkError("the member is silent")
        path = request.find_text("file")
        if path is not None:
            _send_file(link, root, path, listed)
            continue
        root = _folder(run, request.find_integer("checkpoint"), request.find_text("cache"))
        listed = {} if root is None else _listed(root)
        link.send({"files": [{"path": name, "size": size} for name, size in listed.items()]})


def cache_entries(config: RunConfig) -> list[str]:
    """What a training reads from its host's cache, by names within it."""
    cache = Path(config.data.cache_dir)
    folders = [Path(item.folder) for item in config.inputs]
    if config.environment is not None and config.environment.wheels is not None:
        folders.append(Path(config.environment.wheels))
    if config.data.fingerprint and (config.data.form or SHARDS) == SHARDS:
        folders.append(config.data.folder)
    elif config.data.fingerprint:
        folders.append(cache / "sources" / config.data.fingerprint)
    return [str(folder.relative_to(cache)) for folder in folders if cache in folder.parents]


def _folder(run: RunFolder, step: int | None, entry: str | None) -> Path | None:
    if step is not None:
        return run.checkpoint(step)
    config = newest_config(run, Record())
    if entry in cache_entries(config):
        return Path(config.data.cache_dir, str(entry))
    return None


def _listed(root: Path) -> dict[str, int]:
    """The files of a folder with their sizes, what completes it last; of a checkpoint those that
    its manifest lists. Empty where the folder is missing."""
    try:
        return _in_order(_paths(root), root)
    except OSError:
        return {}


def _paths(root: Path) -> Sequence[str]:
    if root.parent.name == "checkpoints":
        try:
            return [*(file.path for file in read_manifest(root).files), MANIFEST_NAME]
        except ManifestError:
            return []
    if not root.is_dir():
        return []
    return [str(path.relative_to(root)) for path in root.rglob("*") if path.is_file()]


def _in_order(paths: Sequence[str], root: Path) -> dict[str, int]:
    by_place = sorted(paths, key=lambda path: (PurePosixPath(path).name in _LAST, path))
    return {path: (root / path).stat().st_size for path in by_place}


def _send_file(link: Link, root: Path | None, path: str, listed: dict[str, int]) -> None:
    if root is None or path not in listed:
        link.send({"refused": f"{path!r} is not on offer"})
        return
    try:
        descriptor = os.open(root / path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        link.send({"refused": f"{path!r} can't be read: {error.strerror}"})
        return
    with os.fdopen(descriptor, "rb") as file:
        link.send_file(file, file_size(file))
