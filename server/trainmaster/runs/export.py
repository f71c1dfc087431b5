"""Writes a spec as a folder for another engine, which runs it without our supervision."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from shlex import quote

from trainmaster.plan.export import ENGINES, engine_file
from trainmaster.plan.spec import SHM_SIZE
from trainmaster.runs.planning import plan_run
from trainmaster.runs.planning.spec_policy import load_allowed_spec
from trainmaster.runs.render import refuse_full, write_bundle
from trainmaster.sync.workspace import Workspace
from trainmaster.words.answers.runs import RenderAnswer
from trainmaster.words.assets import find_assets
from trainmaster.words.errors import UsageError

# A reference as the registries' specification has it: host, path, tag, digest.
_IMAGE = re.compile(
    r"(?:[A-Za-z0-9.-]+(?::[0-9]{1,5})?/)?[a-z0-9]+(?:[._/-]+[a-z0-9]+)*"
    r"(?::[\w][\w.-]{0,127})?(?:@sha256:[0-9a-f]{64})?",
    re.ASCII,
)
_LONGEST_IMAGE = 500
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
    given = load_allowed_spec(workspace, spec, sets).compute
    left_out = []
    if given.launcher == "docker" and to in ENGINES:
        sets = [*sets, *_WITHOUT_CONTAINER]  # the other engine starts it
        if ENGINES[to].takes_image:
            image = image or given.image
        else:
            left_out = [f"compute.image is left out: the file for {to} takes no image."]
    _check_engine(to, image)
    refuse_full(folder)
    planned = await plan_run.plan_spec(workspace, spec, host, sets)
    name = planned.spec.name
    file = engine_file(planned.plan, name, to, image, find_assets())
    bundle, found = write_bundle(planned, folder, {file.name: file.text})
    return RenderAnswer(
        name=name,
        folder=str(folder),
        files=sorted({path.partition("/")[0] for path in (*bundle.files, *found.copies)}),
        warnings=[*left_out, *found.warnings, *planned.plan.warnings] or None,
        next_step=f"Read the head of {file.name}: what {to} needs first, and what is lost without "
        f"supervision. Then `cd {quote(str(folder))} && {file.start}`.",
    )


def _check_engine(to: str, image: str | None) -> None:
    engine = ENGINES.get(to)
    if engine is None:
        raise UsageError(
            "BAD_ARGUMENT",
            f"{to!r} is not an engine that specs are exported to.",
            f"Take one of {', '.join(ENGINES)}.",
            field="to",
        )
    if image is None and engine.takes_image:
        raise UsageError(
            "BAD_ARGUMENT",
            f"{to} runs a container, and no image is given.",
            "Give an image with Python 3.10 or newer, and PyTorch where the container has no "
            "network.",
            field="image",
        )
    if image is not None and not engine.takes_image:
        raise UsageError(
            "BAD_ARGUMENT",
            f"The file for {to} takes no image.",
            "Leave the image out.",
            field="image",
        )
    if image is not None and (len(image) > _LONGEST_IMAGE or not _IMAGE.fullmatch(image)):
        raise UsageError(
            "BAD_ARGUMENT",
            "This is not an image's name.",
            "Write it as registry/path:tag or registry/path@sha256:DIGEST.",
            field="image",
        )
