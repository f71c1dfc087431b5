"""Adopts the output folder of another training: a new run continues from its checkpoint."""

from __future__ import annotations

import json
import os
import re
import shlex
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from trainer_runtime.core.files.foreign_output import FoundCheckpoint
from trainer_runtime.core.files.private import share
from trainer_runtime.core.protocol.desired import Desired
from trainer_runtime.core.protocol.duration import spoken_duration
from trainer_runtime.core.protocol.states import DesiredState
from trainmaster.backends import DEBUG, LOCAL, OutputReader
from trainmaster.plan.spec import load_spec
from trainmaster.plan.spec.annotations import NAME_ACCEPTED, NAME_PATTERN
from trainmaster.runs.adopt.agreement import (
    refuse_another_framework,
    refuse_another_shape,
    refuse_no_steps,
)
from trainmaster.runs.adopt.output_folder import Output
from trainmaster.runs.adopt.schedule_continuation import (
    assumed_defaults,
    fields_to_continue,
    given_fields,
)
from trainmaster.runs.adopt.starting_spec import DATA, starting_spec
from trainmaster.runs.launch import launched, start_run
from trainmaster.runs.planning import plan_run
from trainmaster.runs.planning.plan_run import Planned
from trainmaster.sync.workspace import Workspace
from trainmaster.words.answers.adopt import AdoptAnswer
from trainmaster.words.errors import UsageError
from trainmaster.words.yaml12 import dump_yaml

STARTING_SPEC = "adopted.yaml"
ADOPT = "adopt"
_JUST_WRITTEN_S = 600.0
_NO_NAME = re.compile(r"[^A-Za-z0-9_-]+")
_LONGEST_NAME = 40


@dataclass(frozen=True, slots=True)
class AdoptOptions:
    """How to adopt. With neither `spec` nor `data` the folder is only inspected, and its
    settings are written as a starting spec.

    `spec`: a path, or YAML text. `data`: what to train on, with the folder's spec.
    `start`: `latest`, the newest checkpoint that verifies, or a step. `python`: the interpreter
    that reads the checkpoints, where the host's own has no PyTorch. `write`: the path of the
    starting spec.
    """

    spec: str | None = None
    data: str | None = None
    host: str | None = None
    name: str | None = None
    sets: Sequence[str] = ()
    start: str = "latest"
    python: str | None = None
    dry_run: bool = False
    write: Path = Path(STARTING_SPEC)


async def adopt(workspace: Workspace, folder: str, options: AdoptOptions) -> AdoptAnswer:
    """Inspect an output folder, verify its checkpoints, and start a run from one of them.

    The folder may be `host:/path`. It is never changed: the run starts from a copy.

    Raises:
        UsageError: `BAD_ARGUMENT`, `UNSAFE_NAME`.
        HostError: `OUTPUT_UNKNOWN`, `OUTPUT_IS_OURS`, `ENVIRONMENT_UNUSABLE`; what keeps the host
            from being reached.
        StateError: `NO_CHECKPOINT`, `CHECKPOINT_DAMAGED`.
        SpecError: `SHAPE_DIFFERS`, or the spec is not valid.
    """
    _refuse_bad(options)
    host, path = _place(folder, options.host)
    reader = OutputReader.of(workspace.backend(host))
    output = Output(host, await reader.read_output(_python(options), path))
    checkpoint = output.chosen(options.start)
    if options.spec is None and options.data is None:
        return _inspected(output, checkpoint, options)
    made = _made(output, checkpoint, options)
    planned = await _planned(workspace, output, checkpoint, options, made.text)
    notes = (
        [*made.notes, *assumed_defaults(output, planned.config, made.known)] if made.is_ours else []
    )
    if options.dry_run:
        again = "Adopt it: the same command without --dry-run."
        return output.answer(
            again,
            resume_from=checkpoint.step,
            spec_text=dump_yaml(json.loads(planned.spec_text)),
            warnings=_warnings(planned, output, time.time()) or None,
            notes=notes,
        )
    return await _begun(workspace, output, checkpoint, planned, notes)


@dataclass(frozen=True, slots=True)
class _Made:
    """A spec's text; for the folder's own spec, notes and the fields that are known besides."""

    text: str
    is_ours: bool = False
    notes: Sequence[str] = ()
    known: Sequence[str] = ()


def _made(output: Output, checkpoint: FoundCheckpoint, options: AdoptOptions) -> _Made:
    """The given spec, or the one derived from the folder."""
    if options.spec is not None:
        return _Made(options.spec)
    derived, notes = fields_to_continue(output, checkpoint, options.sets)
    name = options.name or _name_of(output)
    text, needed = starting_spec(output, checkpoint, name, options.data, derived)
    _refuse_open(output, needed, options.sets)
    known = [*derived, *given_fields(options.sets)]
    return _Made(text, is_ours=True, notes=notes, known=known)


def _refuse_bad(options: AdoptOptions) -> None:
    if options.spec is not None and options.data is not None:
        raise UsageError(
            "BAD_ARGUMENT",
            "--spec and --data were given: a spec names its data itself.",
            "Leave one of them out.",
            field="data",
        )
    name = options.name
    if name is not None and (not NAME_PATTERN.fullmatch(name) or ".." in name):
        raise UsageError(
            "UNSAFE_NAME",
            f"{name!r} is not a valid name for a run.",
            f"Use {NAME_ACCEPTED}.",
            field="name",
        )


def _place(folder: str, host: str | None) -> tuple[str, str]:
    """The host and the path there."""
    named, colon, path = folder.partition(":")
    if colon and path.startswith(("/", "~")) and "/" not in named:
        if host is not None and host != named:
            raise UsageError(
                "BAD_ARGUMENT",
                f"The folder is on {named}, and --host names {host}.",
                "Name one of them.",
                field="host",
            )
        host, folder = named, path
    host = host or LOCAL
    if host == DEBUG:
        raise UsageError(
            "BAD_ARGUMENT",
            "On debug nothing is trained that could be taken over.",
            "Use local for this machine, or a host that `trainmaster hosts` lists.",
            field="host",
        )
    if host == LOCAL:
        folder = os.path.abspath(os.path.expanduser(folder))
    return host, folder


def _python(options: AdoptOptions) -> str | None:
    """The interpreter that is to read the checkpoints, where one is named."""
    if options.python is not None or options.spec is None:
        return options.python
    return plan_run.given_python(load_spec(options.spec, list(options.sets)))


def _inspected(output: Output, checkpoint: FoundCheckpoint, options: AdoptOptions) -> AdoptAnswer:
    """The folder, and its starting spec written where there is none yet."""
    place = output.folder if output.host == LOCAL else f"{output.host}:{output.folder}"
    command = f"trainmaster adopt {shlex.quote(place)}"
    name = options.name or _name_of(output)
    derived, notes = fields_to_continue(output, checkpoint, options.sets)
    text, needed = starting_spec(output, checkpoint, name, None, derived)
    more = " ".join(["--data PATH", *(f"--set {field}=…" for field in needed if field != DATA)])
    if options.dry_run:
        again = f"Continue from it: `{command} {more}`."
        return output.answer(again, spec_text=text, open=needed, notes=notes)
    written = _write_new(options.write, text)
    return output.answer(
        f"Fill in {', '.join(needed)} in {written}, then: `{command} --spec {written}`; or at "
        f"once: `{command} {more}`.",
        spec=str(written),
        open=needed,
        notes=notes,
    )


def _write_new(path: Path, text: str) -> Path:
    """Write the spec under the first free name."""
    number = 1
    while True:
        place = path if number == 1 else path.with_stem(f"{path.stem}-{number}")
        try:
            with place.open("x", encoding="utf-8") as file:
                file.write(text)
            share(place)
        except FileExistsError:
            number += 1
            continue
        except OSError as error:
            raise UsageError(
                "BAD_ARGUMENT",
                f"{place} can't be written: {error.strerror}.",
                "Name another place: --write PATH.",
                field="write",
            ) from error
        return place


async def _planned(
    workspace: Workspace,
    output: Output,
    checkpoint: FoundCheckpoint,
    options: AdoptOptions,
    spec: str,
) -> Planned:
    """The plan of the run by its spec, with what it begins with.

    Raises:
        SpecError: the spec can't continue from the checkpoint.
    """
    sets = list(options.sets)
    if options.name is not None:
        sets.append(f"name={json.dumps(options.name)}")
    loaded = load_spec(spec, [*sets, f"host={json.dumps(output.host)}"])
    refuse_another_framework(loaded.framework, output.framework)
    planned = await plan_run.plan_spec(workspace, spec, output.host, sets)
    refuse_another_shape(planned.config, output.found.shape)
    refuse_no_steps(int(planned.config["steps"]), checkpoint.resume_step)
    plan_run.refuse_unlaunchable(planned)
    adopted = {
        "framework": output.framework,
        "folder": output.folder,
        "path": checkpoint.path,
        "step": checkpoint.step,
        "stamp": checkpoint.stamp,
    }
    plan = planned.plan.model_copy(update={"config": {**planned.config, ADOPT: adopted}})
    return replace(planned, plan=plan)


def _refuse_open(output: Output, needed: Sequence[str], sets: Sequence[str]) -> None:
    given = {item.partition("=")[0].strip() for item in sets}
    lacking = [field for field in needed if field not in given]
    if lacking:
        raise UsageError(
            "BAD_ARGUMENT",
            f"{output.folder} doesn't record {' and '.join(lacking)}.",
            f"Add {' '.join(f'--set {field}=…' for field in lacking)}, or write a spec (--spec).",
            field=lacking[0],
        )


async def _begun(
    workspace: Workspace,
    output: Output,
    checkpoint: FoundCheckpoint,
    planned: Planned,
    notes: Sequence[str],
) -> AdoptAnswer:
    step = checkpoint.resume_step
    desired = Desired(DesiredState.RUNNING, generation=1, mode="step", step=step, why=ADOPT)
    run_id = await start_run(workspace, planned, desired)
    assert run_id is not None  # no key that another could have taken
    begun = launched(workspace, run_id)
    return output.answer(
        begun.next_step or "",
        resume_from=step,
        run_id=run_id,
        name=begun.name,
        state=begun.state,
        attempt=begun.attempt,
        pending=begun.pending,
        cursor=begun.cursor,
        warnings=_warnings(planned, output, time.time()) or None,
        notes=notes,
    )


def _warnings(planned: Planned, output: Output, now: float) -> list[str]:
    """The plan's warnings, and what a folder doesn't record."""
    warnings = list(planned.plan.warnings)
    age_s = now - max(one.time for one in output.found.checkpoints)
    if age_s < _JUST_WRITTEN_S:
        warnings.append(
            f"{output.folder} was written to {spoken_duration(max(0.0, age_s))} ago: if its "
            "training still runs, end it, or both continue."
        )
    if output.framework == "nanogpt":
        warnings.append(
            "A checkpoint of nanoGPT doesn't record which tokens it was trained on: where they are "
            f"not data.tokenizer's ({planned.config['data']['tokenizer']}), the loss begins high."
        )
    return warnings


def _name_of(output: Output) -> str:
    """The name of its folder, or of the parent where that is generic."""
    folder = Path(output.folder)
    generic = folder.name in ("out", "output", "outputs", "results", "checkpoints")
    words = f"{folder.parent.name}-{folder.name}" if generic else folder.name
    name = _NO_NAME.sub("-", words).strip("-_")[:_LONGEST_NAME].strip("-_")
    return name if NAME_PATTERN.fullmatch(name) else "adopted"
