"""Recognises an output folder, and reads each of its checkpoints whole."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from trainer_runtime.core.protocol.lines import finite_or_named
from trainer_runtime.core.protocol.text import shown
from trainer_runtime.train.foreign.huggingface import HUGGING_FACE
from trainer_runtime.train.foreign.litgpt import LITGPT
from trainer_runtime.train.foreign.nanogpt import NANOGPT
from trainer_runtime.train.foreign.records import (
    Examined,
    Kind,
    UnusableError,
    examined,
    files_of,
    stamp_of,
)

KINDS: tuple[Kind, ...] = (NANOGPT, LITGPT, HUGGING_FACE)
# What only a run of our own has in its folder.
_OURS = ("supervisor.jsonl", "desired.json")


class RefusedError(Exception):
    """It can't be taken over: `code` as in the operator's table of errors."""

    def __init__(self, code: str, message: str, fix: str) -> None:
        super().__init__(message)
        self.refusal = {"code": code, "message": message, "fix": fix}


def look_at_output(target: str) -> dict[str, Any]:
    """`{"output": …}`, or `{"refused": …}` with an error.

    `output`: `framework folder checkpoints shape described open notes`. Each checkpoint has `path`
    (below the folder), `step` (None where it can't be told), `time`, `size_bytes`, `stamp`,
    `metrics`, `rate` and `problem` (None: it can be resumed from). The others are as `Examined` has
    them, of the newest that can.
    """
    try:
        folder = _folder(target)
        kind, places = _recognised(folder)
    except RefusedError as error:
        return {"refused": error.refusal}
    looked = [_looked_at(kind, place, folder) for place in places]
    usable = [(told["step"], index) for index, (told, found) in enumerate(looked) if found]
    newest = looked[max(usable)[1]][1] if usable else None
    described = dict(newest.described) if newest else {}
    return {
        "output": {
            "framework": described.pop("framework", kind.framework),
            "folder": str(folder),
            "checkpoints": [told for told, _ in looked],
            "shape": dict(newest.shape) if newest else {},
            "described": {name: value for name, value in described.items() if value is not None},
            "open": list(newest.open) if newest else [],
            "notes": list(newest.notes) if newest else [],
        }
    }


def kind_of(framework: str) -> Kind:
    """How a framework of ours leaves its checkpoints; TRL's are Trainer's."""
    return next(kind for kind in KINDS if kind.framework == {"trl": "hf"}.get(framework, framework))


def _folder(target: str) -> Path:
    path = Path(target).expanduser()
    folder = path if path.is_absolute() else Path.home() / path
    try:
        folder = folder.resolve(strict=True)
        is_folder = folder.is_dir()
    except OSError as error:
        raise RefusedError(
            "OUTPUT_UNKNOWN",
            f"{_plain(folder)} can't be looked at: {error.strerror}.",
            "Give the folder that the training writes its checkpoints into.",
        ) from None
    if not is_folder:
        raise RefusedError(
            "OUTPUT_UNKNOWN",
            f"{_plain(folder)} is no folder.",
            "Give the folder that the training writes its checkpoints into.",
        )
    for place in (folder, *folder.parents):
        if all((place / name).exists() for name in _OURS):
            raise RefusedError(
                "OUTPUT_IS_OURS",
                f"{_plain(folder)} belongs to the run {_plain(place.name)} of Trainmaster.",
                f"Go on with it: `trainmaster resume {_plain(place.name)}`.",
            )
    return folder


def _recognised(folder: Path) -> tuple[Kind, list[Path]]:
    found = [(kind, places) for kind in KINDS if (places := kind.candidates(folder))]
    if len(found) == 1:
        return found[0]
    looked_for = "; ".join(kind.looked_for for kind in KINDS)
    if not found:
        raise RefusedError(
            "OUTPUT_UNKNOWN",
            f"{_plain(folder)} holds no output that is known. Looked for: {looked_for}.",
            "Give the folder that the training writes its checkpoints into.",
        )
    raise RefusedError(
        "OUTPUT_UNKNOWN",
        f"{_plain(folder)} holds output of several trainings: "
        f"{', '.join(kind.looked_for for kind, _ in found)}.",
        "Give the folder of one of them.",
    )


def _looked_at(kind: Kind, place: Path, folder: Path) -> tuple[dict[str, Any], Examined | None]:
    files: Sequence[Path] = files_of(place)
    told: dict[str, Any] = {
        "path": "." if place == folder else place.relative_to(folder).as_posix(),
        "step": kind.named_step(place),
        "time": max((path.stat().st_mtime for path in files), default=0.0),
        "size_bytes": sum(path.stat().st_size for path in files),
        "stamp": stamp_of(place),
        "metrics": {},
        "rate": None,
        "problem": None,
    }
    try:
        found = examined(kind, place)
    except UnusableError as error:
        return {**told, "problem": _plain(error)}, None
    measured = {"metrics": finite_or_named(found.metrics), "rate": found.rate}
    return {**told, "step": found.step, **measured}, found


def _plain(text: object) -> str:
    """Names that anybody may have given, harmless."""
    return shown(" ".join(str(text).splitlines()).encode(errors="replace"))
