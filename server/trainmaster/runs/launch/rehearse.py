"""Starts rehearsals, and asks for one before what costs much."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from trainer_runtime.core.protocol.command import command
from trainmaster.answers.runs import LaunchAnswer
from trainmaster.backends import LOCAL
from trainmaster.errors.confirmation import Confirm, Quote, digest_of_request
from trainmaster.errors.errors import PolicyError, UsageError
from trainmaster.plan.planned import Planned
from trainmaster.plan.rehearsal import LABEL, Kind, digest_of, rehearsed, tiny_sets
from trainmaster.plan.spec import TrainingSpec
from trainmaster.runs.launch.launch import launch
from trainmaster.runs.planning.spec_policy import load_allowed_spec
from trainmaster.runs.rehearsal.report import report_of
from trainmaster.sync.run_view import load_view
from trainmaster.sync.workspace import Workspace

_MOST_GPU_HOURS = 1.0
_MOST_COMPARED = 20
_ANSWERS = frozenset({"", "first", "only", "tiny", "skip"})


@dataclass(frozen=True, slots=True)
class Rehearsal:
    """How to rehearse: `continues`: the training follows by itself once it has passed."""

    kind: Kind
    continues: bool = False


async def launch_rehearsal(
    workspace: Workspace,
    spec: str,
    how: Rehearsal,
    *,
    host: str | None = None,
    sets: Sequence[str] = (),
    idempotency_key: str | None = None,
    confirm: Confirm | None = None,
) -> LaunchAnswer:
    """Start the rehearsal of a spec: on its own host, or a tiny one on `host` (else this machine).

    Raises:
        UsageError: as `plan.rehearsal.rehearsed` does.
        TrainmasterError: as `launch` does; nothing was started.
    """
    whole = load_allowed_spec(workspace, spec, sets)
    if how.kind == "tiny":
        host, sets = host or LOCAL, [*sets, *tiny_sets(whole)]

    async def rehearsal_of(planned: Planned) -> Planned:
        return rehearsed(planned, how.kind, whole, continues=how.continues)

    answer = await launch(
        workspace,
        spec,
        host=host,
        sets=sets,
        idempotency_key=idempotency_key,
        confirm=confirm,
        last_check=rehearsal_of,
        variant=f"rehearsal {how.kind} {how.continues}",
    )
    if how.continues:
        path = workspace.home.awaited_rehearsal(answer.run_id)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    return _noted(workspace, answer)


async def launch_for_agent(
    workspace: Workspace,
    spec: str,
    rehearse: str,
    *,
    host: str | None,
    sets: Sequence[str],
    idempotency_key: str | None,
    confirm: Confirm,
) -> LaunchAnswer:
    """Launch, or rehearse, as an agent asks for it: more than a GPU-hour takes a rehearsal that has
    passed, or a person's word (`skip`).

    Raises:
        UsageError: `BAD_ARGUMENT`.
        PolicyError: `NOT_REHEARSED`.
        TrainmasterError: as `launch` does.
    """
    if rehearse not in _ANSWERS:
        raise UsageError(
            "BAD_ARGUMENT",
            f"`rehearse` can't be {rehearse!r}.",
            "Say first (and then all of it), only, tiny (on this machine), or skip, which a person "
            "has to allow.",
            field="rehearse",
        )
    if rehearse in ("first", "only", "tiny"):
        how = Rehearsal("tiny" if rehearse == "tiny" else "smoke", continues=rehearse == "first")
        return await launch_rehearsal(
            workspace,
            spec,
            how,
            host=host,
            sets=sets,
            idempotency_key=idempotency_key,
            confirm=confirm,
        )

    async def check(planned: Planned) -> Planned:
        return await refuse_unrehearsed(workspace, planned, confirm if rehearse else None)

    return await launch(
        workspace,
        spec,
        host=host,
        sets=sets,
        idempotency_key=idempotency_key,
        confirm=confirm,
        last_check=check,
    )


def _noted(workspace: Workspace, answer: LaunchAnswer) -> LaunchAnswer:
    run = workspace.control.run(answer.run_id)
    record, steps = run.plan["rehearsal"], run.config.steps
    after = f"; {record['of']} follows once it has passed" if record["continues"] else ""
    note = f"A rehearsal of {record['of']} over {steps} steps{after}."
    return answer.model_copy(update={"note": note})


async def refuse_unrehearsed(
    workspace: Workspace, planned: Planned, confirm: Confirm | None
) -> Planned:
    """Refuses more than a GPU-hour without a rehearsal that has passed, unless a person allows it.

    Raises:
        PolicyError: `NOT_REHEARSED`.
        SpendError: as `confirm` does.
    """
    hours, gpus = planned.plan.estimates.hours, planned.config["compute"].get("gpus") or 0
    nodes = planned.config["compute"].get("nodes") or 1
    gpu_hours = (hours or 0.0) * gpus * nodes
    if gpu_hours <= _MOST_GPU_HOURS or has_passed(workspace, planned.spec):
        return planned
    name = planned.spec.name
    what = f"{name} takes some {round(gpu_hours)} GPU-hours, and no rehearsal of it has passed."
    if confirm is None:
        raise PolicyError(
            "NOT_REHEARSED",
            what,
            f"Rehearse it first: {command('launch', 'SPEC', '--smoke')} then launches the "
            "training by itself. A person may allow it without.",
        )
    asked = digest_of_request("unrehearsed", digest_of(planned.spec), planned.spec.host)
    await confirm(Quote("launch", asked, f"{what} Launch it without one?"))
    return planned


def has_passed(workspace: Workspace, spec: TrainingSpec) -> bool:
    """Whether one of the newest rehearsals of this very spec, on whatever host, has passed."""
    digest = digest_of(spec)
    rows = workspace.control.list.newest(_MOST_COMPARED, label=f"{LABEL}={spec.name}")
    for row in rows:
        view = load_view(workspace, row.run_id)
        record = view.run.plan.get("rehearsal") or {}
        if record.get("spec") == digest and report_of(workspace, view).verdict == "passed":
            return True
    return False
