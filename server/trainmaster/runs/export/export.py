"""Writes a spec as a folder for another engine, which runs it without our supervision."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from shlex import quote

from trainer_runtime.core.protocol.command import option
from trainmaster.answers.runs import RenderAnswer
from trainmaster.errors.errors import UsageError
from trainmaster.home.assets import find_assets
from trainmaster.plan.export import (
    ENGINES,
    Engine,
    engine_file,
    for_another_machine,
    without_job,
)
from trainmaster.plan.planned import Planned, plan_again
from trainmaster.plan.spec import SHM_SIZE, EnvironmentSpec, TrainingSpec
from trainmaster.runs.export.render_spec import refuse_full, refuse_several_machines, write_bundle
from trainmaster.runs.planning import plan_run
from trainmaster.runs.planning.spec_policy import load_allowed_spec
from trainmaster.sync.workspace import Workspace

# A reference as the registries' specification has it: host, path, tag, digest.
_IMAGE = re.compile(
    r"(?:[A-Za-z0-9.-]+(?::[0-9]{1,5})?/)?[a-z0-9]+(?:[._/-]+[a-z0-9]+)*"
    r"(?::[\w][\w.-]{0,127})?(?:@sha256:[0-9a-f]{64})?",
    re.ASCII,
)
_LONGEST_IMAGE = 500
_OTHER_NODES = (
    "{host} has no such GPU: its partition, account and further options are left out; give sbatch "
    "those of nodes that have one."
)
_WITHOUT_CONTAINER = (
    *("compute.launcher=process", "compute.image=null"),
    f"compute.shm_size={SHM_SIZE}",
)


async def export_spec(
    workspace: Workspace,
    spec: str,
    folder: Path,
    *,
    to: str,
    image: str | None = None,
    host: str | None = None,
    sets: Sequence[str] = (),
) -> RenderAnswer:
    """Plan a spec and write its rendered folder with the file that the engine `to` takes.

    The plan may be for a GPU that no host here has (`compute.gpu`).

    Raises:
        UsageError: `BAD_ARGUMENT`, an unknown engine, an image that is missing or not one, or a
            folder that holds something.
        StorageError: `ROOT_NOT_WRITABLE`, the folder can't be written.
        TrainmasterError: the plan is impossible.
    """
    loaded = load_allowed_spec(workspace, spec, sets)
    compute = loaded.compute
    own_image = compute.image if compute.launcher == "docker" else None
    engine = _checked_engine(to, image or own_image, is_given=image is not None)
    if compute.nodes > 1 and engine.one_machine is not None:
        raise _refused(
            "compute.nodes",
            f"The file for {to} is for one machine: {engine.one_machine}.",
            "Set compute.nodes to 1, or export to slurm or kubernetes.",
        )
    refuse_full(folder)
    if own_image is not None:
        sets = [*sets, *_WITHOUT_CONTAINER]  # the other engine starts it
    sets, other_python = _without_python(loaded, to, sets)
    planned = await _planned(workspace, spec, host, sets, compute.nodes)
    made = planned.plan
    job = made.config.get("slurm") if to == "slurm" and made.launchable else None
    plan = without_job(made) if job is not None else for_another_machine(without_job(made))
    name, used = planned.spec.name, image or own_image
    file = engine_file(plan, name, to, used, find_assets(), job=job)
    more = {file.name: file.text}
    written = write_bundle(workspace.home, replace(planned, plan=plan), folder, more)
    left_out = [*other_python, *_left_out(planned.spec, engine, to, own_image)]
    if to == "slurm" and job is None and "slurm" in made.config:
        left_out.append(_OTHER_NODES.format(host=planned.spec.host))
    warnings = [*left_out, *(written.warnings or ()), *planned.plan.warnings]
    step = (
        f"Read the head of {file.name}: what {to} needs first, and what is lost without "
        f"supervision. Then `cd {quote(str(folder))} && {file.start}`."
    )
    return written.model_copy(update={"warnings": warnings or None, "next_step": step})


async def _planned(
    workspace: Workspace, spec: str, host: str | None, sets: Sequence[str], nodes: int
) -> Planned:
    """For as many machines like the host, where the spec asks for several."""
    if nodes < 2:
        planned = await plan_run.plan_spec(workspace, spec, host, sets)
        refuse_several_machines(planned.config)
        return planned
    on_one_node = await plan_run.plan_spec(workspace, spec, host, [*sets, "compute.nodes=1"])
    facts = on_one_node.facts.model_copy(update={"alike": nodes})
    made = replace(on_one_node, facts=facts).to_dict()
    return plan_again(on_one_node.spec_text, [f"compute.nodes={nodes}"], made)


def _without_python(
    spec: TrainingSpec, to: str, sets: Sequence[str]
) -> tuple[Sequence[str], list[str]]:
    """`sets` without an interpreter of one host, where another machine or an image trains, and a
    warning of that; a cluster's nodes may have it."""
    environment = spec.environment
    if to == "slurm" or not isinstance(environment, EnvironmentSpec) or environment.python is None:
        return sets, []
    more = environment.model_dump(exclude={"python"}, exclude_none=True)
    where = "the image" if ENGINES[to].takes_image else "a machine of SkyPilot"
    left = (
        f"environment.python is left out: {where} need not have {environment.python}. train.sh "
        "takes a Python there that can train, or builds an environment."
    )
    return [*sets, "environment.python=null" if more else "environment=auto"], [left]


def _left_out(spec: TrainingSpec, engine: Engine, to: str, image: str | None) -> list[str]:
    """Warnings of what the spec asks for and the engine's file can't have."""
    notes = []
    if image is not None and not engine.takes_image:
        notes.append(f"compute.image is left out: the file for {to} takes no image.")
    if spec.limits.max_runtime != "auto" and not engine.has_limit:
        notes.append(f"limits.max_runtime is left out: {to} has no time limit.")
    return notes


def _checked_engine(to: str, image: str | None, *, is_given: bool) -> Engine:
    """The engine; `image`: the argument if `is_given`, else the spec's.

    Raises:
        UsageError: `BAD_ARGUMENT`.
    """
    engine = ENGINES.get(to)
    if engine is None:
        raise _refused(
            "to",
            f"{to!r} is not an engine that specs are exported to.",
            f"Take one of {', '.join(ENGINES)}.",
        )
    if image is None and engine.takes_image:
        raise _refused(
            "image",
            f"{to} runs a container, and no image is given.",
            f"Give an image ({option('--image')}) with Python 3.10 or newer, and PyTorch where "
            "the container has no network.",
        )
    if is_given and not engine.takes_image:
        raise _refused("image", f"The file for {to} takes no image.", "Leave the image out.")
    if image is not None and (len(image) > _LONGEST_IMAGE or not _IMAGE.fullmatch(image)):
        raise _refused(
            "image",
            "This is not an image's name.",
            "Write it as registry/path:tag or registry/path@sha256:DIGEST.",
        )
    return engine


def _refused(field: str, message: str, fix: str) -> UsageError:
    return UsageError("BAD_ARGUMENT", message, fix, field=field)
