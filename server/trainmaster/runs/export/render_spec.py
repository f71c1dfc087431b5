"""Renders the bundle of a spec into a folder of this machine, to be read or run by hand."""

from __future__ import annotations

import os
import shutil
import stat
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from shlex import quote
from typing import Any

from trainer_runtime.core.files.private import share
from trainer_runtime.core.protocol.command import command, option
from trainmaster.answers.runs import RenderAnswer
from trainmaster.errors.errors import StorageError, UsageError
from trainmaster.home.assets import find_assets
from trainmaster.home.paths import Home
from trainmaster.plan.planned import Planned, refuse_unlaunchable
from trainmaster.plan.render import Bundle, render
from trainmaster.runs.export.portable_bundle import MOST_BYTES, Portable, copy_inputs, portable
from trainmaster.runs.planning import plan_run
from trainmaster.sync.workspace import Workspace


async def render_spec(
    workspace: Workspace,
    spec: str,
    folder: Path,
    *,
    host: str | None = None,
    sets: Sequence[str] = (),
    most_bytes: int = MOST_BYTES,
) -> RenderAnswer:
    """Plan a spec as a launch would, and write what would be placed on the host into `folder`,
    which must not exist or be empty, with its data and models, unless one has more than
    `most_bytes`. The run's id is the spec's name.

    Raises:
        UsageError: `BAD_ARGUMENT`, the folder holds something.
        StorageError: `ROOT_NOT_WRITABLE`, the folder can't be written.
        TrainmasterError: the launch is impossible.
    """
    refuse_full(folder)
    planned = await plan_run.plan_spec(workspace, spec, host, sets)
    refuse_unlaunchable(planned)
    refuse_several_machines(planned.config)
    written = write_bundle(workspace.home, planned, folder, most_bytes=most_bytes)
    elsewhere = "" if written.warnings else ", on this machine or where the folder is copied to"
    step = (
        "Read train.py, and training_config.yaml for the reason of each value. `cd "
        f"{quote(str(folder))} && sh train.sh` trains there{elsewhere}; "
        f"{command('launch', 'SPEC')} starts the same under supervision."
    )
    warnings = [*(written.warnings or ()), *planned.plan.warnings]
    return written.model_copy(update={"warnings": warnings or None, "next_step": step})


def refuse_full(folder: Path) -> None:
    """Raises: UsageError: `BAD_ARGUMENT`, the folder holds something."""
    if folder.is_symlink() or folder.is_file() or (folder.is_dir() and any(folder.iterdir())):
        raise UsageError(
            "BAD_ARGUMENT",
            f"{folder} exists and is not an empty folder.",
            "Name a new folder: nothing is replaced.",
            field="folder",
        )


def write_bundle(
    home: Home,
    planned: Planned,
    folder: Path,
    more: Mapping[str, str] | None = None,
    *,
    most_bytes: int = MOST_BYTES,
) -> RenderAnswer:
    """Write a planned run's bundle with its inputs; `more`: texts of further files by their name.
    The answer warns of what keeps the folder from training elsewhere.

    Raises:
        StorageError: `ROOT_NOT_WRITABLE`, the folder can't be written.
    """
    try:
        inputs = portable(planned, home, most_bytes=most_bytes)
        attached = {**planned.attached, **(more or {})}
        plan = planned.plan.model_copy(update={"config": inputs.config, "attached": attached})
        bundle = render(plan, planned.spec.name, find_assets())
        _write(bundle, inputs, folder)
    except OSError as error:
        raise StorageError(
            "ROOT_NOT_WRITABLE",
            f"{folder} can't be written: {error.strerror}.",
            "Name a folder that can be made, on a disk with room.",
            field="folder",
        ) from error
    return RenderAnswer(
        name=planned.spec.name,
        folder=str(folder),
        files=sorted({path.partition("/")[0] for path in (*bundle.files, *inputs.copies)}),
        warnings=inputs.warnings or None,
        next_step="",
    )


def refuse_several_machines(config: Mapping[str, Any]) -> None:
    """Raises: UsageError: `UNSUPPORTED`, the spec asks for several."""
    if int(config["compute"].get("nodes") or 1) > 1:
        raise UsageError(
            "UNSUPPORTED",
            "A rendered folder trains on one machine, but the spec asks for several.",
            f"Name one host ({option('--host', 'NAME')}) and leave compute.nodes out, "
            "or launch the spec.",
            field="host",
        )


def _write(bundle: Bundle, inputs: Portable, folder: Path) -> None:
    """All files, or no folder."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    part = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=folder.parent))
    try:
        for path, content in bundle.files.items():
            target = part / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(content)
        copy_inputs(inputs, part)
        for place in (part, *part.rglob("*")):
            share(place)
        for path in bundle.executable:
            (part / path).chmod((part / path).stat().st_mode | stat.S_IXUSR)
        os.rename(part, folder)
    except OSError:
        shutil.rmtree(part, ignore_errors=True)
        raise
