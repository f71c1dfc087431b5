"""Release a rented instance: get agreement, copy its data here, end it, wait until it is gone."""

from __future__ import annotations

import asyncio
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
from trainmaster.machines.renting.volume_request import volume_in_use
from trainmaster.machines.renting.volumes import advance_volume
from trainmaster.runs.overview.volume_use import runs_on, unfinished_on, user_of
from trainmaster.runs.status.cost import spent_usd
from trainmaster.store.control.instances import ReleaseRequest, RentedInstance, RentState
from trainmaster.store.control.volumes import RentedVolume
from trainmaster.store.reserve import give_up_reserve
from trainmaster.sync.follow import catch_up
from trainmaster.sync.rebuild_state import refuse_incomplete
from trainmaster.sync.workspace import Workspace

_POLL_S = 0.5
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


async def release_volume(
    workspace: Workspace, volume: RentedVolume, confirm: Confirm, force: bool, clouds: CloudFactory
) -> ReleaseAnswer:
    """Delete a volume with all data on it. Idempotent.

    Raises:
        StateError: `VOLUME_IN_USE`; without `force`, `VOLUME_HOLDS_CHECKPOINTS`.
        SpendError: `CONFIRMATION_REQUIRED`, `CONFIRMATION_DECLINED`.
        CloudError: errors of the provider.
    """
    if volume.open and volume.release_requested_t is None:
        volume = await _agree_on_volume(workspace, volume, confirm, force)
    for _ in range(3):
        if volume.open:
            await advance_volume(workspace, volume.tag, clouds, time.time())
            volume = workspace.control.volumes.find(volume.tag) or volume
            await asyncio.sleep(_POLL_S if volume.open else 0)
    again = f"Its provider still lists it; repeat {command('release', volume.name)}."
    return ReleaseAnswer(
        instance=volume.tag,
        host=volume.name,
        state="releasing" if volume.open else "ended",
        spent_usd=round(spent_usd(volume, time.time()), 4),
        next_step=again if volume.open else None,
    )


async def _agree_on_volume(
    workspace: Workspace, volume: RentedVolume, confirm: Confirm, force: bool
) -> RentedVolume:
    refuse_incomplete(workspace)
    if (user := user_of(workspace, volume)) is not None:
        raise volume_in_use(volume, user.host)
    unfinished = unfinished_on(workspace, volume)
    if unfinished and not force:
        raise StateError(
            "VOLUME_HOLDS_CHECKPOINTS",
            f"The volume {volume.name} holds checkpoints of unfinished runs: "
            f"{', '.join(unfinished)}.",
            "Resume them on an instance with it "
            f"({command('provision', 'OFFER', '--hours', 'H', '--volume', volume.name)}), or give "
            f"them up: {command('release', volume.name, '--force')}.",
        )
    question = json.dumps([volume.tag, "volume", force, unfinished])
    text = _volume_quote_text(workspace, volume, unfinished)
    await confirm(Quote("release", question, text))
    if (user := user_of(workspace, volume)) is not None:  # attached while the user was asked
        raise volume_in_use(volume, user.host)
    return workspace.control.volumes.change(
        volume.tag, release_requested_t=time.time(), end_reason="released"
    )


def _volume_quote_text(workspace: Workspace, volume: RentedVolume, unfinished: list[str]) -> str:
    spent = spent_usd(volume, time.time())
    runs = [run.name for run in runs_on(workspace, volume) if run.name not in unfinished]
    text = [
        f"Delete the volume {volume.name} ({volume.size_gb} GB at {volume.provider}), which has "
        f"cost {usd_text(spent)}, with all data on it.",
        *([f"Lost: checkpoints of the unfinished {', '.join(unfinished)}."] if unfinished else []),
        *([f"Also there: files of {', '.join(runs)}."] if runs else []),
    ]
    return " ".join(text)
