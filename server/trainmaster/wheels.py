"""Sending a folder of wheels to a run's box, into the cache that its runs share."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trainer_runtime.core.states import AttemptState, DesiredState
from trainmaster.errors import PlanError, SpecError
from trainmaster.hosts.tree_files import TreeFile, files_of_folder
from trainmaster.run import Run
from trainmaster.transfer_progress import finished_attempt
from trainmaster.view import RunView
from trainmaster.workspace import Workspace

if TYPE_CHECKING:
    from trainmaster.plan import HostFacts
    from trainmaster.spec import TrainingSpec

WHEELS = "wheels"

Report = Callable[[int, int], None]


class WheelsUpload:
    """The wheels that an attempt's environment is built from, as a `transfer.Transfer`."""

    what = WHEELS

    def __init__(self, workspace: Workspace, run: Run, attempt: int) -> None:
        self.attempt = attempt
        self._run_id = run.run_id
        self._backend = workspace.backend(run.host)
        self._environment: dict[str, Any] = run.config["environment"]

    async def carry_out(self, report: Report) -> None:
        """Send what is missing.

        Raises:
            HostError: the box refuses or can't be reached; what has arrived is kept.
            PlanError: `DATA_MISSING`, `DATA_CHANGED`; the box was told.
        """
        try:
            files = await asyncio.to_thread(self._listed)
        except PlanError as error:
            await self._backend.refuse_upload(self._run_id, self.attempt, error.message)
            raise
        await self._backend.send(
            files,
            self._environment["wheels"],
            mark=True,
            on_progress=lambda progress: report(progress.done_bytes, progress.total_bytes),
        )

    def _listed(self) -> list[TreeFile]:
        folder = Path(self._environment["wheels_from"])
        try:
            files = _files(folder)
        except OSError as error:
            raise PlanError(
                "DATA_MISSING",
                f"The wheels in {folder} can't be read any more: {error.strerror}.",
                "Put them back and launch anew.",
            ) from error
        if not self._environment["wheels"].endswith(f"/{_digest(files)}"):
            raise PlanError(
                "DATA_CHANGED",
                f"The wheels in {folder} changed since the plan.",
                "Launch anew: the plan is made for the files as they are then.",
            )
        return files


def due_wheels(workspace: Workspace, view: RunView) -> WheelsUpload | None:
    """The wheels that the newest attempt waits for, where that has not been seen to."""
    run, current = view.run, view.record.current
    environment = run.config.get("environment")
    if not isinstance(environment, dict) or not environment.get("wheels_from") or view.ended:
        return None
    if view.desired.state is DesiredState.STOPPED:
        return None
    if current is not None and current.state is not AttemptState.STARTING:
        return None
    attempt = max(1, view.attempt)
    if finished_attempt(workspace.home, run.run_id, WHEELS) >= attempt:
        return None
    return WheelsUpload(workspace, run, attempt)


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
    place = f"{facts.cache_folder}/sources/{_digest(files)}"
    return facts.model_copy(update={"wheels": place})


def _files(folder: Path) -> list[TreeFile]:
    return [file for file in files_of_folder(folder) if file.name.endswith(".whl")]


def _digest(files: list[TreeFile]) -> str:
    rows = [[file.name, file.size_bytes, file.modified_ns] for file in files]
    return hashlib.sha256(json.dumps(rows).encode()).hexdigest()[:32]


def _unusable(folder: str, problem: str) -> SpecError:
    return SpecError(
        "INVALID_VALUE",
        f"`environment.wheels` names {folder}, which can't be sent: {problem}.",
        "Give a folder of wheels (`pip download --dest FOLDER …` fills one).",
        field="environment.wheels",
    )
