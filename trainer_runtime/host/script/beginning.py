"""Where a program's attempt begins: from which of its checkpoints, each verified again before."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from trainer_runtime.core.config import RunConfig
from trainer_runtime.core.config.script import ScriptConfig
from trainer_runtime.core.files.durable import sync_folder
from trainer_runtime.core.files.manifest import ManifestError, read, verify
from trainer_runtime.host.files.files import read_fields, read_json
from trainer_runtime.host.files.layout import RunFolder
from trainer_runtime.host.script.seal import PRUNED, SAVED_AT
from trainer_runtime.host.script.whole import files_of

REFUSED = "refused"


class NoCheckpointError(Exception):
    """The checkpoint that was asked for by its step can't be used; no other one replaces it."""


@dataclass(frozen=True, slots=True)
class Beginning:
    """`checkpoint`: the program's own path, where the verified one stands; None: from scratch.
    `skipped`: those that were passed over, with the reason."""

    step: int = 0
    checkpoint: Path | None = None
    saved_by: int | None = None
    skipped: Sequence[tuple[int, str]] = ()


def begin(
    run: RunFolder, config: RunConfig, script: ScriptConfig, base: Path, steps: Sequence[int]
) -> Beginning:
    """The newest of `steps` that verifies, put back where the program expects it.

    Raises:
        NoCheckpointError: the one that was asked for by its step does not verify.
        OSError: it can't be put back.
    """
    if script.resume is None:
        return Beginning()
    skipped: list[tuple[int, str]] = []
    for step in steps:
        folder = run.checkpoints / f"step-{step:08d}"
        problems = verify(folder) or _without_place(folder)
        if not problems:
            place = _put_back(run, folder, base)
            return Beginning(step, place, read(folder).attempt, skipped)
        skipped.append((step, problems[0]))
    if steps and config.attempt.resume.mode not in ("latest", "scratch"):
        raise NoCheckpointError(f"checkpoint {skipped[0][0]}: {skipped[0][1]}")
    return Beginning(skipped=skipped)


def sealed_steps(run: RunFolder) -> list[int]:
    """The steps on the disk that have a manifest, newest first."""
    steps = []
    for folder in run.checkpoints.glob("step-*"):
        with suppress(ManifestError):
            steps.append(read(folder).step)
    return sorted(steps, reverse=True)


def unreported_prunings(run: RunFolder) -> list[int]:
    """The steps whose checkpoints an earlier attempt had removed before it was killed."""
    fields = read_fields(run.checkpoints / PRUNED)
    steps = () if fields is None else fields.integers("steps")
    return [step for step in steps if not run.checkpoint(step).exists()]


def _without_place(folder: Path) -> list[str]:
    saved = (read_json(folder / SAVED_AT) or {}).get("path")
    return [] if isinstance(saved, str) else [f"{SAVED_AT} is missing"]


def _put_back(run: RunFolder, folder: Path, base: Path) -> Path:
    """The program's own path, once what stands there is what was verified.

    What stood there instead is moved to `refused/` of the run's folder, its newest alone.
    """
    name = str((read_json(folder / SAVED_AT) or {}).get("path"))
    place = Path(os.path.normpath(base / name))
    original = folder / place.name
    if _is_same(original, place):
        return place
    _set_aside(run, place)
    place.parent.mkdir(parents=True, exist_ok=True)
    part = place.with_name(f".{place.name}.putting-back")
    _remove(part)
    copy = shutil.copytree if original.is_dir() else shutil.copy2
    copy(original, part)
    part.rename(place)
    sync_folder(place.parent)
    return place


def _is_same(original: Path, place: Path) -> bool:
    """Whether both hold the same bytes; what was verified just now is the measure."""
    mine, theirs = files_of(original), files_of(place) if place.exists() else []
    names = [path.relative_to(original) for path in mine]
    if [path.relative_to(place) for path in theirs] != names:
        return False
    return all(_same_bytes(file, other) for file, other in zip(mine, theirs, strict=True))


def _same_bytes(file: Path, other: Path) -> bool:
    if file.samefile(other):
        return True
    if file.stat().st_size != other.stat().st_size:
        return False
    with file.open("rb") as first, other.open("rb") as second:
        while data := first.read(1 << 20):
            if data != second.read(1 << 20):
                return False
    return True


def _set_aside(run: RunFolder, place: Path) -> None:
    if not os.path.lexists(place):
        return
    aside = run.root / REFUSED / place.name
    _remove(aside)
    aside.parent.mkdir(exist_ok=True)
    shutil.move(str(place), str(aside))


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
