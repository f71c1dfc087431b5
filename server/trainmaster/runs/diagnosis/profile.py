"""`diagnose --speed --profile`: asks a running trainer for a profile of its next steps."""

from __future__ import annotations

import asyncio
import secrets
import time
from dataclasses import dataclass
from typing import Any

from trainer_runtime.core.decoding import Fields
from trainer_runtime.core.frameworks import framework_of
from trainer_runtime.core.protocol.command import command
from trainer_runtime.core.protocol.figures import spoken_duration
from trainer_runtime.core.protocol.profile import STEPS, Profile, ProfileRequest
from trainer_runtime.core.protocol.text import shown
from trainmaster.backends import Profiler
from trainmaster.errors.errors import StateError
from trainmaster.sync.refresh import READ_WITHIN_S, refresh
from trainmaster.sync.run_view import RunView
from trainmaster.sync.workspace import Workspace

_READ_EVERY_S = 0.5
_LEAST_S, _LONGEST_S = 60.0, 600.0
# Under the profiler a step of many small operators takes several times as long.
_TIMES_SLOWER = 4.0


@dataclass(frozen=True, slots=True)
class ProfileOptions:
    """`within_s`: how long to wait for the answer; None for what its steps should take."""

    keeps_trace: bool = False
    within_s: float | None = None


async def profiled(workspace: Workspace, view: RunView, options: ProfileOptions) -> RunView:
    """The run's view with a profile of the steps that follow, which its trainer takes.

    Raises:
        StateError: `RUN_ENDED`; `NOT_PROFILED` where the trainer can't be asked, takes no steps
            yet, fails at it, or does not answer in time: then the answer may come later.
        HostError: `UNSUPPORTED`, or the host can't be reached.
    """
    _refuse_others(view)
    _refuse_ended(view)
    progress = view.progress
    if progress is None or progress.attempt != view.attempt or not progress.steps_done:
        raise StateError(
            "NOT_PROFILED",
            f"Run {view.run.run_id} takes no steps yet.",
            f"{command('status', view.run.run_id)} says what it waits for; then ask again.",
            retryable=True,
        )
    profiler = Profiler.of(workspace.backend(view.run.host), run_id=view.run.run_id)
    request = ProfileRequest(secrets.token_hex(8), view.attempt, options.keeps_trace)
    await profiler.request_profile(view.run.run_id, request)
    usual_s = progress.step_time_s or 0.0
    within_s = options.within_s
    if within_s is None:
        within_s = min(_LONGEST_S, _LEAST_S + _TIMES_SLOWER * (STEPS + 2) * usual_s)
    return await _answered(workspace, view, request, within_s)


def newest_profile(view: RunView) -> Profile | None:
    """The newest profile of the run's newest attempt; None where none was taken."""
    recorded = None if view.progress is None else view.progress.profile
    profile = None if recorded is None else Profile.of(Fields(recorded, "profile"))
    return None if profile is None or profile.problem is not None else profile


async def _answered(
    workspace: Workspace, view: RunView, request: ProfileRequest, within_s: float
) -> RunView:
    run_id, deadline = view.run.run_id, time.monotonic() + within_s
    while (left_s := deadline - time.monotonic()) > 0:
        view = await refresh(workspace, run_id, min(READ_WITHIN_S, left_s))
        recorded: dict[str, Any] = (view.progress and view.progress.profile) or {}
        if recorded.get("request") == request.id:
            _refuse_failed(run_id, recorded.get("problem"))
            return view
        _refuse_ended(view)
        await asyncio.sleep(min(_READ_EVERY_S, max(0.0, deadline - time.monotonic())))
    raise StateError(
        "NOT_PROFILED",
        f"The trainer of {run_id} has not answered within {spoken_duration(within_s)}; between "
        "two steps it still may. One that an earlier version has launched never does.",
        f"{command('diagnose', run_id, '--speed')} shows the profile once it is taken; "
        f"{command('inspect', run_id)} shows whether the trainer progresses.",
        retryable=True,
    )


def _refuse_others(view: RunView) -> None:
    """A program's loop, or that of an attached training, is its own."""
    run = view.run
    if not run.is_attached and framework_of(run.config.framework).is_patched:
        return
    raise StateError(
        "NOT_PROFILED",
        f"The loop of {run.run_id} is the program's own: no profile can be asked of it.",
        f"Run `py-spy record --pid PID --output profile.svg` on {run.host}, or let the program "
        "use torch.profiler around some steps.",
    )


def _refuse_ended(view: RunView) -> None:
    if view.ended:
        raise StateError(
            "RUN_ENDED",
            f"Run {view.run.run_id} is {view.state.value}: it takes no steps to profile.",
            f"{command('diagnose', view.run.run_id, '--speed')} judges it by what it recorded; "
            f"{command('resume', view.run.run_id)} continues it.",
        )


def _refuse_failed(run_id: str, problem: object) -> None:
    if problem is not None:
        words = shown(str(problem).encode(errors="replace"))[:300]
        raise StateError(
            "NOT_PROFILED",
            f"PyTorch's profiler failed in {run_id}, which continues: {words}",
            "Let the program use no other profiler at that time, then ask again.",
            retryable=True,
        )
