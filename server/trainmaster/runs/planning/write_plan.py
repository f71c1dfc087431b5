"""Writes a plan as documents into a folder: its pages, a picture, the framework's own files."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from trainer_runtime.core.decoding import MAX_DOCUMENT_BYTES
from trainer_runtime.core.files.durable import write_atomic
from trainmaster.errors.errors import StorageError, UsageError
from trainmaster.home.assets import find_assets
from trainmaster.metrics.plots.curves import RunCurves
from trainmaster.metrics.plots.panels import Panel
from trainmaster.plan import Plan
from trainmaster.plan.decisions.curriculum import curriculum_of
from trainmaster.plan.render import render

# What says that a folder holds an earlier plan.
_RECORD, _MARK = "plan.json", "trainmaster_plan"
_PICTURE, _CONFIGS = "schedule.png", "configs"
_OF_HOST = ("train.sh",)
_POINTS = 400


def refuse_unwritable(folder: Path) -> None:
    """Raises: UsageError: `BAD_ARGUMENT`, the folder holds something other than an earlier plan."""
    if not os.path.lexists(folder):
        return
    is_folder = folder.is_dir() and not folder.is_symlink()
    is_ours = is_folder and not (folder / _CONFIGS).is_symlink() and _earlier(folder) is not None
    if is_ours or (is_folder and not any(folder.iterdir())):
        return
    raise UsageError(
        "BAD_ARGUMENT",
        f"{folder} exists and holds no earlier plan.",
        "Name a new or empty folder, or one with an earlier plan, whose files are replaced.",
        field="--write",
    )


def write_plan(made: Plan, place: str, warnings: Sequence[str], folder: Path) -> str:
    """Write the documents of a plan, and say in a sentence what the folder holds.

    Raises:
        UsageError: as `refuse_unwritable`.
        StorageError: `ROOT_NOT_WRITABLE`, the folder can't be written.
    """
    # With all detectors, which a launch does without.
    from trainmaster.runs.planning.plan_pages import pages_of, tokens_of

    refuse_unwritable(folder)
    files = {name: text.encode() for name, text in pages_of(made, place, warnings).items()}
    files[_PICTURE] = _picture(made)
    for name, content in render(made, made.config["name"], find_assets()).files.items():
        if "/" not in name and name not in _OF_HOST:
            files[f"{_CONFIGS}/{name}"] = content
    record = {
        _MARK: 1,
        "place": place,
        "files": sorted(files),
        "tokens": tokens_of(made),
        "warnings": list(warnings),
        **made.model_dump(mode="json", exclude={"attached", "warnings"}),
    }
    try:
        earlier = _earlier(folder) or {}
        (folder / _CONFIGS).mkdir(parents=True, exist_ok=True)
        _write(folder / _RECORD, (json.dumps(record, indent=1) + "\n").encode())
        for name in _left_over(earlier, files):
            (folder / _CONFIGS / name).unlink(missing_ok=True)
        for name, content in files.items():
            _write(folder / name, content)
    except OSError as error:
        raise StorageError(
            "ROOT_NOT_WRITABLE",
            f"{folder} can't be written: {error.strerror}.",
            "Name a folder that can be made, on a disk with room.",
            field="--write",
        ) from error
    names = ", ".join(name for name in files if "/" not in name)
    return f"{folder} holds {names}, {_RECORD} and {_CONFIGS}/."


def _write(path: Path, content: bytes) -> None:
    write_atomic(path, content, 0o644)


def _earlier(folder: Path) -> Mapping[str, Any] | None:
    """The record of the plan that a folder holds."""
    try:
        with (folder / _RECORD).open("rb") as file:
            record = json.loads(file.read(MAX_DOCUMENT_BYTES))
    except (OSError, ValueError, RecursionError):
        return None
    return record if isinstance(record, dict) and record.get(_MARK) == 1 else None


def _left_over(earlier: Mapping[str, Any], files: Mapping[str, bytes]) -> list[str]:
    """Names of an earlier plan's configurations that this one does not have."""
    listed = earlier.get("files")
    names = [name for name in listed if isinstance(name, str)] if isinstance(listed, list) else []
    own = [name.partition("/") for name in names if name not in files]
    return [
        name for folder, _, name in own if folder == _CONFIGS and name and Path(name).name == name
    ]


def _picture(made: Plan) -> bytes:
    """The rate over the steps, and of several sources the share of each."""
    from trainmaster.metrics.plots.figure import png_of

    curriculum = curriculum_of(made.config)
    total, names = made.config["steps"], [item["name"] for item in made.config["data"]["sources"]]
    count = min(_POINTS, total)
    steps = [1 + index * (total - 1) // max(1, count - 1) for index in range(count)]
    series = {"lr": [(float(step), curriculum.rate(step)) for step in steps]}
    panels = [Panel(("lr",), "learning rate", "step", moments=False)]
    if len(names) > 1:
        mixes = [(float(step), curriculum.weights(step)) for step in steps]
        keys = tuple(f"{name}, share" for name in names)
        for index, key in enumerate(keys):
            series[key] = [(step, mix[index] / sum(mix)) for step, mix in mixes]
        panels.append(Panel(keys, "share of each source", "step", moments=False))
    return png_of([RunCurves(made.config["name"], series, ())], panels, made.config["name"])
