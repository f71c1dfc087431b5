"""Probes the program that a spec names."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

from trainer_runtime.core.files.corpus import ON_BOX
from trainmaster.backends import HERE
from trainmaster.calls.work_thread import in_thread
from trainmaster.errors.errors import PlanError
from trainmaster.home.paths import Home
from trainmaster.plan.decisions.program_file import leads_out, no_such_file, program_file
from trainmaster.plan.facts import CodeFacts
from trainmaster.plan.fields.script import ScriptSpec
from trainmaster.plan.spec import TrainingSpec
from trainmaster.runs.planning.code_folder import read_code
from trainmaster.runs.planning.program_data import read_data
from trainmaster.settings.settings import read_settings
from trainmaster.store import secret_values
from trainmaster.store.masking import Mask
from trainmaster.store.secret_patterns import mask_patterns
from trainmaster.sync.workspace import Workspace
from trainmaster.transfers.upload_folder import digest_of, plain_name

_FILLED_IN = re.compile(r"\{\w+\}")


async def probe_code(
    workspace: Workspace, spec: TrainingSpec, script: ScriptSpec
) -> tuple[CodeFacts, Mapping[str, str]]:
    """The program's folder and its data as they are now, and the texts that travel with the run:
    `code.json` and `code.diff`.

    Raises:
        PlanError: `CODE_MISSING`, `CODE_TOO_LARGE`, `CODE_INCOMPLETE`, `COMMAND_NOT_FOUND`,
            `DATA_MISSING`.
    """
    data = await in_thread(read_data, spec, workspace.home)
    if script.path.startswith(ON_BOX):
        place = Path(script.path.removeprefix(ON_BOX))
        if spec.host in HERE:
            _refuse_no_command(script, place)
            _refuse_no_file(spec, script, place)
        return CodeFacts(path=script.path, in_place=True, data=data), {}
    folder = Path(script.path)
    facts, texts = await in_thread(_read, workspace.home, spec, script, folder)
    return facts.model_copy(update={"data": data}), texts


def _read(
    home: Home, spec: TrainingSpec, script: ScriptSpec, folder: Path
) -> tuple[CodeFacts, Mapping[str, str]]:
    code = read_code(folder, read_settings(home).max_code_mib * 2**20, home)
    if spec.host in HERE or script.command[0].startswith("./"):
        _refuse_no_command(script, folder)
    if spec.host in HERE:
        _refuse_no_file(spec, script, folder)
    facts = CodeFacts(
        path=script.path,
        files=tuple((file.name, file.size_bytes) for file in code.files),
        digest=code.digest,
        commit=code.commit,
        dirty=code.dirty,
        left=tuple(code.left),
        total_bytes=code.size_bytes,
    )
    if spec.host not in HERE:
        placed = {
            "sent_as": f"code-{plain_name(folder.name, 'program')}-{code.digest[:12]}",
            "listing": digest_of(code.there.to_send()),
        }
        facts = facts.model_copy(update=placed)
    texts = {"code.json": code.listing}
    diff = masked_diff(home, spec.secrets, os.environ, code.diff)
    return facts, {**texts, "code.diff": diff} if diff else texts


def _refuse_no_command(script: ScriptSpec, folder: Path) -> None:
    """Raises: PlanError: `COMMAND_NOT_FOUND`, on this machine or in the folder that travels."""
    name = script.command[0]
    if _FILLED_IN.search(name):
        return
    if "/" in name:
        there = os.access(folder / name, os.X_OK) and (folder / name).is_file()
    else:
        there = shutil.which(name) is not None
    if not there:
        raise PlanError(
            "COMMAND_NOT_FOUND",
            f"`script.command` starts {name!r}, which is not there or can't be run.",
            "Name a program of the search path, or a file of the folder as ./NAME that may be "
            "run; a Python file as [python3, NAME].",
            field="script.command",
        )


def _refuse_no_file(spec: TrainingSpec, script: ScriptSpec, folder: Path) -> None:
    """Raises: PlanError: `COMMAND_NOT_FOUND`, for a file of this machine that does not travel."""
    named = program_file(script.command)
    if named is None or (leads_out(named) and spec.compute.launcher == "docker"):
        return
    if not leads_out(named) and not script.path.startswith(ON_BOX):
        return  # the plan knows what travels
    if not os.path.exists(folder / os.path.expanduser(named)):
        raise no_such_file(named, f"there, seen from {folder}", ())


def masked_diff(
    home: Home, secrets: Sequence[str], environment: Mapping[str, str], diff: str
) -> str:
    """The diff without the values of `secrets`, and of all that the home has.

    Raises:
        StateError: `SECRET_MISSING`, `SECRET_INVALID`.
    """
    if not diff:
        return diff
    values = secret_values.maskable_values(home, secrets, environment)
    return mask_patterns(Mask(values).text(diff))
