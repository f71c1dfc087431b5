"""Uploads a folder of wheels to a run's host, into the cache that its runs share."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from trainmaster.backends.hosts.tree_files import TreeFile, files_of_folder
from trainmaster.errors.errors import SpecError
from trainmaster.sync.run_view import RunView
from trainmaster.sync.workspace import Workspace
from trainmaster.transfers.upload_folder import (
    FolderToSend,
    FolderUpload,
    awaiting_attempt,
    digest_of,
)

if TYPE_CHECKING:
    from trainmaster.plan import HostFacts
    from trainmaster.plan.spec import TrainingSpec

WHEELS = "wheels"


def due_wheels(workspace: Workspace, view: RunView) -> FolderUpload | None:
    """The wheels that the newest attempt waits for, where not finished."""
    environment = view.run.config.environment
    if environment is None or not environment.wheels_from or not environment.wheels:
        return None
    attempt = awaiting_attempt(workspace, view, WHEELS)
    if attempt is None:
        return None
    here, there = environment.wheels_from, environment.wheels
    digest = there.rpartition("/")[2]
    folder = FolderToSend(WHEELS, here, there, digest, lambda: _files(Path(here)))
    return FolderUpload(workspace, view.run, attempt, folder)


def with_place_of_wheels(spec: TrainingSpec, facts: HostFacts) -> HostFacts:
    """The facts, with where the spec's wheels will lie on the host if they are sent there.

    Raises:
        SpecError: the folder can't be read, or holds no wheels.
    """
    from trainmaster.plan import wheels_to_send  # with it comes all of planning

    here = wheels_to_send(spec)
    if here is None:
        return facts
    try:
        files = _files(Path(here))
    except OSError as error:
        raise _unusable(here, error.strerror or str(error)) from error
    if not files:
        raise _unusable(here, "there are no wheels in it")
    place = f"{facts.cache_folder}/sources/{digest_of(files)}"
    return facts.model_copy(update={"wheels": place})


def _files(folder: Path) -> list[TreeFile]:
    return [file for file in files_of_folder(folder) if file.name.endswith(".whl")]


def _unusable(folder: str, problem: str) -> SpecError:
    return SpecError(
        "INVALID_VALUE",
        f"`environment.wheels` names {folder}, which can't be sent: {problem}.",
        "Give a folder of wheels (`pip download --dest FOLDER …` fills one).",
        field="environment.wheels",
    )
