"""Release a rented instance: get agreement, copy its data here, end it, wait until it is gone."""

from __future__ import annotations

import json
import time

from trainer_runtime.core.protocol.command import command
from trainer_runtime.core.protocol.figures import usd_text
from trainmaster.answers.rentals import ReleaseAnswer
from trainmaster.errors.confirmation import Confirm, Quote
from trainmaster.errors.errors import CloudError, StateError
from trainmaster.machines.renting.drain import (
    Losses,
    assess_losses,
    open_runs_error,
    runs_of,
)
from trainmaster.machines.renting.factory import CloudFactory, cloud_factory
from trainmaster.machines.renting.instance_answers import release_answer
from trainmaster.machines.renting.instances import start_provision_worker, wait_while
from trainmaster.machines.renting.reconcile import release_orphan
from trainmaster.machines.renting.release_volume import release_volume
from trainmaster.runs.status.cost import spent_usd
from trainmaster.store.control.instances import ReleaseRequest, RentedInstance, RentState
from trainmaster.store.reserve import give_up_reserve
from trainmaster.sync.follow import catch_up
from trainmaster.sync.workspace import Workspace

WAIT_S = 30.0


async def release(
    workspace: Workspace,
    name: str,
    *,
    confirm: Confirm,
    force: bool = False,
    wait_s: float = WAIT_S,
    factory: CloudFactory | None = None,
) -> ReleaseAnswer:
    """Release an instance by its host's name or its tag, an orphan by its tag, or a network volume
    by its name or tag. Idempotent: a
    release that has begun continues, and needs no second agreement.

    Without `force` it is refused for open runs, and for data that can't be copied here.

    Raises:
        StateError: `RUN_IS_RUNNING`, `NOT_MIRRORED`, `VOLUME_IN_USE`, `VOLUME_HOLDS_CHECKPOINTS`.
        SpendError: `CONFIRMATION_REQUIRED`, `CONFIRMATION_DECLINED`.
        CloudError: `INSTANCE_UNKNOWN`; `INSTANCE_STILL_LISTED`, its end was requested, and is
            requested again in the background; errors of the provider.
    """
    give_up_reserve(workspace.home)
    instance = workspace.control.instances.find(name)
    clouds = cloud_factory(workspace, factory)
    if instance is None and (volume := workspace.control.volumes.find(name)) is not None:
        return await release_volume(workspace, volume, confirm, force, clouds)
    if instance is None:
        return await release_orphan(workspace, name, confirm, wait_s, clouds)
    if not instance.open:
        return release_answer(instance)
    if not _is_requested(instance) or (force and _may_be_refused(instance)):
        await _agree(workspace, instance, confirm, force)
    instance = await wait_while(workspace, instance.tag, _is_requested, wait_s)
    refusal = instance.release_refusal
    if instance.state is RentState.READY and refusal is not None and instance.release is None:
        raise StateError(refusal.code, refusal.message, refusal.fix, refusal.retryable)
    if instance.state is RentState.RELEASING:
        raise _still_listed(instance)
    return release_answer(instance)


def request_release(
    workspace: Workspace,
    instance: RentedInstance,
    *,
    why: str,
    force: bool,
    agreed_by: str | None = None,
) -> None:
    """Record that an instance is to be released, and start its worker; `why` becomes its
    `end_reason`.

    With `force` its runs are stopped, and data that can't be copied here is given up.
    """
    state = None if instance.state is RentState.READY else RentState.RELEASING
    request = ReleaseRequest(time.time(), force, why, agreed_by)
    workspace.control.instances.change(instance.tag, state, release=request, release_refusal=None)
    start_provision_worker(workspace, instance.tag)


async def _agree(
    workspace: Workspace, instance: RentedInstance, confirm: Confirm, force: bool
) -> None:
    if instance.state is RentState.READY and any(
        not run.closed for run in runs_of(workspace, instance)
    ):
        await catch_up(workspace, instance.host)
    losses = assess_losses(workspace, instance)
    if losses.open_runs and not force:
        raise open_runs_error(instance, losses.open_runs)
    # An approval covers exactly the losses that its quote listed.
    lost = [losses.open_runs, sorted(losses.not_mirrored)] if force else []
    asked = json.dumps([instance.tag, force, *lost])
    agreed_by = await confirm(Quote("release", asked, _quote_text(instance, losses, force)))
    request_release(workspace, instance, why="released", force=force, agreed_by=agreed_by)


def _quote_text(instance: RentedInstance, losses: Losses, force: bool) -> str:
    spent = spent_usd(instance, time.time())
    text = [
        f"Release {instance.host} ({instance.provider}), which has cost {usd_text(spent)} of "
        f"{usd_text(instance.budget_usd)}.",
        f"The machine and its disk are deleted{'; its volume stays' if instance.volume else ''}.",
    ]
    if losses.open_runs:
        text.append(f"Stopped first: {', '.join(losses.open_runs)}.")
    if losses.not_mirrored:
        listed = "; ".join(f"{run}: {data}" for run, data in losses.not_mirrored.items())
        given_up = " Data that can't be copied is lost." if force else ""
        text.append(f"Copied here first: {listed}.{given_up}")
    return " ".join(text)


def _is_requested(instance: RentedInstance) -> bool:
    if instance.state is RentState.READY:
        return instance.release is not None
    return instance.state is RentState.RELEASING


def _may_be_refused(instance: RentedInstance) -> bool:
    """Whether it is being released without `force`."""
    forced = instance.release is not None and instance.release.force
    return instance.state is RentState.READY and not forced


def _still_listed(instance: RentedInstance) -> CloudError:
    error = instance.last_error
    why = f" ({error.code}: {error.message})" if error else ""
    return CloudError(
        "INSTANCE_STILL_LISTED",
        f"{instance.provider} still lists {instance.host} after its end was requested{why}.",
        "The request is repeated in the background; check in a minute with "
        f"{command('release', instance.host)}. If it remains, end it in the provider's console.",
        retryable=True,
    )
