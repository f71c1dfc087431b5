"""Recognizes the framework of an output folder and reads each of its checkpoints whole."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from trainer_runtime.core.files.foreign_output import FoundCheckpoint, FoundOutput
from trainer_runtime.core.frameworks import framework_of
from trainer_runtime.core.protocol.command import command, option
from trainer_runtime.core.protocol.lines import finite_or_named
from trainer_runtime.core.protocol.text import shown
from trainer_runtime.train.checks.pickles import UnsafeTorchError, refuse_unsafe_torch
from trainer_runtime.train.foreign.huggingface import HUGGING_FACE
from trainer_runtime.train.foreign.litgpt import LITGPT
from trainer_runtime.train.foreign.nanogpt import NANOGPT
from trainer_runtime.train.foreign.process_limits import limit_process
from trainer_runtime.train.foreign.records import (
    Examined,
    Kind,
    UnusableError,
    examined,
    files_of,
    stamp_of,
)

KINDS: tuple[Kind, ...] = (NANOGPT, LITGPT, HUGGING_FACE)
# Files that only a run of Trainmaster has in its folder.
_OURS = ("supervisor.jsonl", "desired.json")

_ARCHIVES = frozenset({".bz2", ".gz", ".tar", ".tgz", ".xz", ".zip", ".zst"})
_GIVE_FOLDER = "Give the folder that the training writes its checkpoints into."


class RefusedError(Exception):
    """The folder can't be adopted; `code` as in the client's table of errors."""

    def __init__(self, code: str, message: str, fix: str) -> None:
        super().__init__(message)
        self.refusal = {"code": code, "message": message, "fix": fix}


def inspect_output(
    target: str, torch_version: str | None = None, *, limited: bool = False
) -> dict[str, Any]:
    """`{"output": …}` (a `FoundOutput`), or `{"refused": …}` with an error.

    `torch_version`: of the PyTorch that opens the checkpoints; None for this interpreter's.
    `limited`: this process is for it alone, and is ended where the folder takes too much.
    """
    try:
        return {"output": _inspected(target, torch_version, limited=limited).to_dict()}
    except RefusedError as error:
        return {"refused": error.refusal}
    except OSError as error:  # it changes meanwhile, or is closed to this account
        named = _plain(error.filename or target)
        message = f"{named} can't be read: {error.strerror}."
        return {"refused": RefusedError("OUTPUT_UNKNOWN", message, _GIVE_FOLDER).refusal}


def _inspected(target: str, torch_version: str | None, *, limited: bool) -> FoundOutput:
    if limited:
        limit_process([])
    folder = _folder(target)
    _refuse_unsafe(torch_version)
    kind, places = _recognised(folder)
    if limited:
        limit_process(path for place in places for path in files_of(place))
    read = [_read(kind, place, folder) for place in places]
    usable = [
        (examined_place.step, index)
        for index, (_, examined_place) in enumerate(read)
        if examined_place
    ]
    newest = read[max(usable)[1]][1] if usable else None
    return _output(kind, folder, tuple(checkpoint for checkpoint, _ in read), newest)


def kind_of(framework: str) -> Kind:
    """The checkpoint format of one of our frameworks."""
    return next(kind for kind in KINDS if kind.framework == framework_of(framework).output)


def _folder(target: str) -> Path:
    path = Path(os.path.expanduser(target))
    folder = path if path.is_absolute() else Path.home() / path
    try:
        folder = folder.resolve(strict=True)
        is_folder = folder.is_dir()
    except (OSError, RuntimeError, ValueError) as error:  # a loop of links; a zero byte
        raise RefusedError(
            "OUTPUT_UNKNOWN",
            f"{_plain(folder)} can't be read: {getattr(error, 'strerror', None) or error}.",
            _GIVE_FOLDER,
        ) from None
    if not is_folder:
        packed = ": unpack it first" if folder.suffix in _ARCHIVES else ""
        message = f"{_plain(folder)} is not a folder{packed}."
        raise RefusedError("OUTPUT_UNKNOWN", message, _GIVE_FOLDER)
    for place in (folder, *folder.parents):
        if all((place / name).exists() for name in _OURS):
            raise RefusedError(
                "OUTPUT_IS_OURS",
                f"{_plain(folder)} belongs to the run {_plain(place.name)} of Trainmaster.",
                f"Resume it: {command('resume', _plain(place.name))}.",
            )
    return folder


def _refuse_unsafe(torch_version: str | None) -> None:
    try:
        refuse_unsafe_torch(torch_version)
    except UnsafeTorchError as refused:
        raise RefusedError(
            "ENVIRONMENT_UNUSABLE",
            f"{sys.executable} does not open the checkpoints: {refused}.",
            f"Name an interpreter with a newer PyTorch ({option('--python', 'PATH')}), or update "
            "this one (`pip install 'torch>=2.6'`).",
        ) from None


def _recognised(folder: Path) -> tuple[Kind, list[Path]]:
    matches = [(kind, places) for kind in KINDS if (places := kind.candidates(folder))]
    if len(matches) == 1:
        return matches[0]
    description = "; ".join(kind.description for kind in KINDS)
    if not matches:
        raise RefusedError(
            "OUTPUT_UNKNOWN",
            f"{_plain(folder)} holds no known training output. Known are: {description}.",
            _GIVE_FOLDER,
        )
    raise RefusedError(
        "OUTPUT_UNKNOWN",
        f"{_plain(folder)} holds output of several trainings: "
        f"{', '.join(kind.description for kind, _ in matches)}.",
        "Give the folder of one of them.",
    )


def _read(kind: Kind, place: Path, folder: Path) -> tuple[FoundCheckpoint, Examined | None]:
    files: Sequence[Path] = files_of(place)
    checkpoint = FoundCheckpoint(
        path="." if place == folder else place.relative_to(folder).as_posix(),
        step=kind.named_step(place),
        time=max((path.stat().st_mtime for path in files), default=0.0),
        size_bytes=sum(path.stat().st_size for path in files),
        stamp=stamp_of(place),
    )
    try:
        contents = examined(kind, place)
    except UnusableError as error:
        return replace(checkpoint, problem=_plain(error)), None
    metrics = finite_or_named(contents.metrics)
    return replace(checkpoint, step=contents.step, metrics=metrics, rate=contents.rate), contents


def _output(
    kind: Kind, folder: Path, checkpoints: tuple[FoundCheckpoint, ...], newest: Examined | None
) -> FoundOutput:
    """`newest`: of the checkpoints that can be used."""
    if newest is None:
        return FoundOutput(kind.framework, str(folder), checkpoints)
    described = {name: value for name, value in newest.described.items() if value is not None}
    return FoundOutput(
        str(described.pop("framework", kind.framework)),
        str(folder),
        checkpoints,
        dict(newest.shape),
        described,
        tuple(newest.open),
        tuple(newest.notes),
    )


def _plain(text: object) -> str:
    """Untrusted names, made safe to print."""
    return shown(" ".join(str(text).splitlines()).encode(errors="replace"))
