"""`average`: the mean of checkpoints as a model, by a bounded process where they are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from trainer_runtime.core.answers.averaged import FOLDER, AverageRequest
from trainer_runtime.core.protocol.command import command
from trainmaster.answers.averages import AveragedAnswer
from trainmaster.backends import TextSampler
from trainmaster.calls.stages import enter_stage
from trainmaster.errors.confirmation import Confirm
from trainmaster.errors.errors import StateError, UsageError
from trainmaster.runs.model_access import (
    allow_model,
    mask_of,
    masked_errors,
    refuse_without_weights,
)
from trainmaster.sync.refresh import refresh
from trainmaster.sync.run_view import RunView
from trainmaster.sync.workspace import Workspace

_USUAL = 5  # of one run
_MOST = 100


@dataclass(frozen=True, slots=True)
class ChosenCheckpoints:
    """Of each run: these `steps`, or the `last` so many verified ones.

    By default the last five of a single run, and the newest of each of several. `ema`: their
    averaged weights.
    """

    last: int | None = None
    steps: tuple[int, ...] = ()
    ema: bool = False
    within_s: float = 600.0


async def average_runs(
    workspace: Workspace,
    runs: Sequence[str],
    chosen: ChosenCheckpoints,
    *,
    confirm: Confirm | None = None,
) -> AveragedAnswer:
    """Write the mean of checkpoints into `averaged/` of the first run's folder.

    The process runs on the runs' host in the first one's environment, reads safetensors tensor by
    tensor, and ends with the call.

    Raises:
        StateError: `RUN_NOT_FOUND`, `NO_CHECKPOINT`, `RUN_ENDED` for one that was cleaned.
        UsageError: `BAD_ARGUMENT`, `UNSUPPORTED` for an attached training.
        HostError: `NOT_AVERAGED`, `UNSUPPORTED`; the host can't be reached.
        PolicyError, SpendError: what it runs is beyond the caller's policy.
    """
    _refuse_impossible(chosen)
    views = [await refresh(workspace, run) for run in runs]
    for view in views:
        refuse_without_weights(view)
    first = views[0]
    _refuse_other_hosts(views)
    steps = _steps_by_run(views, chosen)
    sampler = TextSampler.of(workspace.backend(first.run.host), run_id=first.run.run_id)
    for view in views:
        await allow_model(workspace, view, "for an average", confirm)
    count = sum(map(len, steps.values()))
    enter_stage(f"averaging {count} checkpoints of {', '.join(steps)}")
    mask = mask_of(workspace, first)
    run_id = first.run.run_id
    with masked_errors(mask):
        request = AverageRequest((), chosen.ema, chosen.within_s)
        averaged = await sampler.average(run_id, steps, request)
    return AveragedAnswer(
        run_id=run_id,
        path=FOLDER,
        steps=steps,
        tensors=averaged.tensors,
        size_bytes=averaged.size_bytes,
        next_step=f"{command('sample', run_id, '--from', FOLDER, '--prompt', 'TEXT')} tries it; "
        f"{command('fetch', run_id, FOLDER, 'DIR')} brings it.",
    )


def _steps_by_run(views: Sequence[RunView], chosen: ChosenCheckpoints) -> dict[str, list[int]]:
    """Raises: StateError: `NO_CHECKPOINT`, a step is not a verified checkpoint of a run."""
    usual = _USUAL if len(views) == 1 else 1
    steps: dict[str, list[int]] = {}
    for view in views:
        verified = [entry.step for entry in view.index.entries if entry.verified]
        wanted = list(chosen.steps) or verified[-(chosen.last or usual) :]
        missing = [step for step in wanted if step not in verified]
        if missing or not wanted:
            named = ", ".join(map(str, missing)) or "any step"
            raise StateError(
                "NO_CHECKPOINT",
                f"Run {view.run.run_id} has no verified checkpoint of step {named}.",
                f"It has those of {', '.join(map(str, verified)) or 'none'}; "
                f"{command('checkpoints', view.run.run_id)} lists them.",
            )
        steps[view.run.run_id] = wanted
    return steps


def _refuse_other_hosts(views: Sequence[RunView]) -> None:
    hosts: Mapping[str, None] = dict.fromkeys(view.run.host for view in views)
    if len(hosts) > 1:
        raise _wrong(
            "run",
            f"The runs are on several hosts: {', '.join(hosts)}",
            "Average runs of one host; `resume --host` moves a run",
        )
    names = [view.run.run_id for view in views]
    if len(set(names)) < len(names):
        raise _wrong("run", "A run is named twice", "Name each once")


def _refuse_impossible(chosen: ChosenCheckpoints) -> None:
    if chosen.last is not None and chosen.steps:
        raise _wrong("last", "`--last` is given beside `--steps`", "Give one of them")
    if chosen.last is not None and not 1 <= chosen.last <= _MOST:
        raise _wrong("last", f"`--last` is {chosen.last}", f"Give 1 to {_MOST}")


def _wrong(field: str, message: str, fix: str) -> UsageError:
    return UsageError("BAD_ARGUMENT", f"{message}.", f"{fix}.", field=field)
