"""Node 0 takes the parts of sharded checkpoints that members send."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path, PurePosixPath

from trainer_runtime.core.decoding import Fields
from trainer_runtime.core.files.manifest import ManifestError
from trainer_runtime.core.files.manifest import read as read_manifest
from trainer_runtime.core.files.parts import Part, arrived, arriving, is_awaited
from trainer_runtime.host.files.layout import RunFolder
from trainer_runtime.host.nodes.link import Link, LinkError

_IDLE_S = 60.0


def receive_parts(run: RunFolder, link: Link) -> None:
    """Take what a member offers until it ends the connection.

    Files that are here from an earlier connection are not sent again. Nothing is flushed to the
    disk: sealing the checkpoint does so.

    Raises:
        OSError: it did so, is silent, or a file can't be written.
    """
    while True:
        offer = link.receive(_IDLE_S)
        if offer is None:
            raise LinkError("the member is silent")
        _take(run, link, offer)


def _take(run: RunFolder, link: Link, offer: Fields) -> None:
    part = Part.named(offer.text("part"))
    if part is None:
        raise LinkError(f"{offer.text('part')!r} is not the name of a part")
    sizes = {file.text("path"): file.integer("size") for file in offer.sections("files")}
    for path in sizes:
        _refuse_unsafe(path)
    if not is_awaited(run.checkpoints, part):
        link.send({"awaited": False, "has": _is_sealed(run, part)})
        return
    whole = arrived(run.checkpoints, part)
    if whole.is_dir():
        link.send({"awaited": False, "has": True})
        return
    _receive(link, arriving(run.checkpoints, part), whole, sizes)


def _receive(link: Link, folder: Path, whole: Path, sizes: Mapping[str, int]) -> None:
    """Raises: OSError: the part is not awaited any more, or can't be received."""
    folder.mkdir(exist_ok=True)  # not its parent, which the trainer removes
    wanted = [path for path, size in sizes.items() if not _is_here(folder / path, size)]
    link.send({"awaited": True, "wanted": wanted})
    for path in wanted:
        _receive_file(link, folder, path)
    folder.rename(whole)
    link.send({"has": True})


def _receive_file(link: Link, folder: Path, path: str) -> None:
    target = folder / path
    if not folder.is_dir():
        raise LinkError("the part is not awaited any more")
    target.parent.mkdir(parents=True, exist_ok=True)
    incomplete = target.with_name(f".incomplete-{target.name}")
    try:
        with incomplete.open("wb") as file:
            link.receive_file(file.write)
        incomplete.rename(target)
    except BaseException:
        incomplete.unlink(missing_ok=True)
        raise


def _is_here(path: Path, size: int) -> bool:
    try:
        return path.stat().st_size == size
    except OSError:
        return False


def _is_sealed(run: RunFolder, part: Part) -> bool:
    """Whether the part is in a checkpoint already."""
    try:
        return read_manifest(run.checkpoint(part.step)).attempt == part.attempt
    except ManifestError:
        return False


def _refuse_unsafe(path: str) -> None:
    parts = PurePosixPath(path).parts
    if not parts or path.startswith("/") or ".." in parts:
        raise LinkError(f"the member names {path!r}, which is not inside its folder")
