"""Adopts the output folder of another training: a new run continues from its checkpoint."""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from trainer_runtime.core.files.foreign_output import FoundCheckpoint
from trainer_runtime.core.files.private import share
from trainer_runtime.core.protocol.command import command, option
from trainer_runtime.core.protocol.desired import Desired
from trainer_runtime.core.protocol.figures import spoken_duration
from trainer_runtime.core.protocol.states import DesiredState
from trainmaster.answers.adopt import AdoptAnswer
from trainmaster.backends import DEBUG, LOCAL, OutputReader
from trainmaster.calls.stages import enter_stage
from trainmaster.errors.confirmation import Confirm, digest_of_request
from trainmaster.errors.errors import UsageError
from trainmaster.plan.fields.annotations import NAME_PATTERN, refuse_unsafe_name
from trainmaster.plan.frameworks import FRAMEWORKS
from trainmaster.plan.planned import Planned, refuse_unlaunchable
from trainmaster.plan.spec import TrainingSpec
from trainmaster.runs.adopt.adopt_policy import allow_reading
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
from trainmaster.runs.launch.launch import launched, start_run
from trainmaster.runs.planning import plan_run
from trainmaster.runs.planning.probe_host import given_python
from trainmaster.runs.planning.spec_policy import load_allowed_spec
from trainmaster.runs.upkeep.advance import advance
from trainmaster.settings.yaml12 import dump_yaml
from trainmaster.store.control.idempotency import IdempotencyKey
from trainmaster.sync.run_view import load_view
from trainmaster.sync.workspace import Workspace

STARTING_SPEC = "adopted.yaml"
ADOPT: Final = "adopt"
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
    starting spec; None to answer with its text.
    """

    spec: str | None = None
    data: str | None = None
    host: str | None = None
    name: str | None = None
    sets: Sequence[str] = ()
    start: str = "latest"
    python: str | None = None
    dry_run: bool = False
    write: Path | None = Path(STARTING_SPEC)


async def adopt(
    workspace: Workspace,
    folder: str,
    options: AdoptOptions,
    *,
    idempotency_key: str | None = None,
    confirm: Confirm | None = None,
) -> AdoptAnswer:
    """Inspect an output folder, verify its checkpoints, and start a run from one of them.

    The folder may be `host:/path`. It is never changed: the run starts from a copy. The same
    `idempotency_key` again finds the first run. `confirm`: who allows what lies beyond the caller's
    policy.

    Raises:
        UsageError: `BAD_ARGUMENT`, `UNSAFE_NAME`, `IDEMPOTENCY_CONFLICT`.
        HostError: `OUTPUT_UNKNOWN`, `OUTPUT_IS_OURS`, `ENVIRONMENT_UNUSABLE`; what keeps the host
            from being reached.
        StateError: `NO_CHECKPOINT`, `CHECKPOINT_DAMAGED`.
        SpecError: `SHAPE_DIFFERS`, or the spec is not valid.
        PolicyError: `POLICY_FILE`, `POLICY_HOST`, `POLICY_PROGRAM`, and as of a launch.
        SpendError: `CONFIRMATION_REQUIRED`, `CONFIRMATION_DECLINED`.
    """
    _refuse_bad(options)
    host, path = _place(folder, options.host)
    spec_given = _given_spec(workspace, options, host)
    key = _key(idempotency_key, host, path, options)
    earlier = None if key is None else workspace.control.keys.result(key)
    python = options.python or (None if spec_given is None else given_python(spec_given))
    was_asked = await allow_reading(workspace, host, path, python, confirm)
    enter_stage(f"verifying the checkpoints in {path}")
    reader = OutputReader.of(workspace.backend(host))
    output = Output(host, await reader.read_output(python, path))
    if earlier is not None:
        await advance(workspace, earlier)
        return _begun(workspace, output, earlier)
    checkpoint = output.chosen(options.start)
    if spec_given is None and options.data is None:
        return _inspected(output, checkpoint, options)
    made = _made(output, checkpoint, options)
    left = None if was_asked else confirm  # a call asks once
    planned = await _planned(workspace, output, checkpoint, options, made.text, left)
    warnings = _warnings(planned, output, time.time()) or None
    notes = made.notes_on(output, planned)
    if options.dry_run:
        return output.answer(
            f"Adopt it: the same command without {option('--dry-run')}.",
            resume_from=checkpoint.step,
            spec_text=dump_yaml(json.loads(planned.spec_text)),
            warnings=warnings,
            notes=notes,
        )
    plan_run.refuse_changed(planned)
    run_id = await _begin(workspace, checkpoint, planned, key)
    if run_id is None:  # the same key, at the same moment, in another process
        return await adopt(
            workspace, folder, options, idempotency_key=idempotency_key, confirm=confirm
        )
    begun = _begun(workspace, output, run_id)
    return begun.model_copy(update={"warnings": warnings, "notes": notes})


def _given_spec(workspace: Workspace, options: AdoptOptions, host: str) -> TrainingSpec | None:
    """The spec that was given, for the host that trains."""
    if options.spec is None:
        return None
    return load_allowed_spec(workspace, options.spec, [*options.sets, f"host={json.dumps(host)}"])


def _key(value: str | None, host: str, path: str, options: AdoptOptions) -> IdempotencyKey | None:
    if not value:
        return None
    asked = [options.spec, options.data, options.name, list(options.sets), options.start]
    return IdempotencyKey(value, ADOPT, digest_of_request(host, path, *asked))


@dataclass(frozen=True, slots=True)
class _Made:
    """A spec's text; for the folder's own spec, notes and the fields that are known besides."""

    text: str
    is_ours: bool = False
    notes: Sequence[str] = ()
    known: Sequence[str] = ()

    def notes_on(self, output: Output, planned: Planned) -> list[str]:
        """What was assumed for the folder's own spec; a given one assumes nothing."""
        if not self.is_ours:
            return []
        return [*self.notes, *assumed_defaults(output, planned.config, self.known)]


def _made(output: Output, checkpoint: FoundCheckpoint, options: AdoptOptions) -> _Made:
    """The given spec, or the one derived from the folder."""
    if options.spec is not None:
        return _Made(options.spec)
    derived, notes = fields_to_continue(output, checkpoint, options.sets)
    name = options.name or _name_of(output)
    text, needed = starting_spec(output, checkpoint, name, options.data, derived)
    _refuse_open(output, needed, options.sets)
    fixed_fields = [*derived, *given_fields(options.sets)]
    return _Made(text, is_ours=True, notes=notes, known=fixed_fields)


def _refuse_bad(options: AdoptOptions) -> None:
    if options.spec is not None and options.data is not None:
        raise UsageError(
            "BAD_ARGUMENT",
            f"{option('--spec')} and {option('--data')} were given: a spec names its data itself.",
            "Leave one of them out.",
            field="data",
        )
    if options.name is not None:
        refuse_unsafe_name(options.name, "name for a run")


def _place(folder: str, host: str | None) -> tuple[str, str]:
    """The host and the path there."""
    named, colon, path = folder.partition(":")
    if colon and path.startswith(("/", "~")) and "/" not in named:
        if host is not None and host != named:
            raise UsageError(
                "BAD_ARGUMENT",
                f"The folder is on {named}, and {option('--host')} names {host}.",
                "Name one of them.",
                field="host",
            )
        host, folder = named, path
    host = host or LOCAL
    if host == DEBUG:
        raise UsageError(
            "BAD_ARGUMENT",
            "On debug nothing is trained that could be taken over.",
            f"Use local for this machine, or a host that {command('hosts')} lists.",
            field="host",
        )
    if host == LOCAL:
        folder = os.path.abspath(os.path.expanduser(folder))
    return host, folder


def _inspected(output: Output, checkpoint: FoundCheckpoint, options: AdoptOptions) -> AdoptAnswer:
    """The folder, and its starting spec written where there is none yet."""
    place = output.folder if output.host == LOCAL else f"{output.host}:{output.folder}"
    name = options.name or _name_of(output)
    derived, notes = fields_to_continue(output, checkpoint, options.sets)
    text, needed = starting_spec(output, checkpoint, name, None, derived)
    sets = [word for field in needed if field != DATA for word in ("--set", f"{field}=VALUE")]
    at_once = command("adopt", place, "--data", "PATH", *sets)
    if options.dry_run or options.write is None:
        again = f"Continue from it: {at_once}."
        return output.answer(again, spec_text=text, open=needed, notes=notes)
    written = _write_new(options.write, text)
    return output.answer(
        f"Fill in {', '.join(needed)} in {written}, then: "
        f"{command('adopt', place, '--spec', written)}; or at once: {at_once}.",
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
                f"Name another place: {option('--write', 'PATH')}.",
                field="write",
            ) from error
        return place


async def _planned(
    workspace: Workspace,
    output: Output,
    checkpoint: FoundCheckpoint,
    options: AdoptOptions,
    spec: str,
    confirm: Confirm | None,
) -> Planned:
    """The plan of the run by its spec, with what it begins with.

    Raises:
        SpecError: the spec can't continue from the checkpoint.
    """
    sets = list(options.sets)
    if options.name is not None:
        sets.append(f"name={json.dumps(options.name)}")
    loaded = load_allowed_spec(workspace, spec, [*sets, f"host={json.dumps(output.host)}"])
    refuse_another_framework(loaded.framework, output.framework)
    planned = await plan_run.plan_spec(workspace, spec, output.host, sets, confirm=confirm)
    refuse_another_shape(planned.config, output.found.shape)
    refuse_no_steps(int(planned.config["steps"]), checkpoint.resume_step)
    refuse_unlaunchable(planned)
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
    fields_set = {item.partition("=")[0].strip() for item in sets}
    lacking = [field for field in needed if field not in fields_set]
    if lacking:
        raise UsageError(
            "BAD_ARGUMENT",
            f"{output.folder} doesn't record {' and '.join(lacking)}.",
            f"Add {' '.join(f'`--set {field}=…`' for field in lacking)}, or a spec "
            f"by {option('--spec')}.",
            field=lacking[0],
        )


async def _begin(
    workspace: Workspace,
    checkpoint: FoundCheckpoint,
    planned: Planned,
    key: IdempotencyKey | None,
) -> str | None:
    """Start the run; None where the key was just taken."""
    step = checkpoint.resume_step
    desired = Desired(DesiredState.RUNNING, generation=1, mode="step", step=step, why=ADOPT)
    return await start_run(workspace, planned, desired, key)


def _begun(workspace: Workspace, output: Output, run_id: str) -> AdoptAnswer:
    """The answer of a call that has started a run, or found the one that an earlier call has."""
    begun = launched(workspace, run_id)
    return output.answer(
        begun.next_step or "",
        resume_from=load_view(workspace, run_id).desired.step,
        run_id=run_id,
        name=begun.name,
        state=begun.state,
        attempt=begun.attempt,
        pending=begun.pending,
        cursor=begun.cursor,
    )


def _warnings(planned: Planned, output: Output, now: float) -> list[str]:
    """The plan's warnings, and what a folder doesn't record."""
    warnings = list(planned.plan.warnings)
    age_s = now - max(checkpoint.time for checkpoint in output.found.checkpoints)
    if age_s < _JUST_WRITTEN_S:
        warnings.append(
            f"{output.folder} was written to {spoken_duration(max(0.0, age_s))} ago: if its "
            "training still runs, end it, or both continue."
        )
    return [*warnings, *FRAMEWORKS[output.framework].unrecorded(planned.config["data"])]


def _name_of(output: Output) -> str:
    """The name of its folder, or of the parent where that is generic."""
    folder = Path(output.folder)
    generic = folder.name in ("out", "output", "outputs", "results", "checkpoints")
    words = f"{folder.parent.name}-{folder.name}" if generic else folder.name
    name = _NO_NAME.sub("-", words).strip("-_")[:_LONGEST_NAME].strip("-_")
    return name if NAME_PATTERN.fullmatch(name) else "adopted"
