"""The life of network volumes: one step of each towards what is wanted.

A volume is recorded before its provider is asked for it, and asked for once.
"""

from __future__ import annotations

from trainer_runtime.core.protocol.command import command
from trainer_runtime.core.protocol.figures import usd_text
from trainmaster.errors.errors import CloudError
from trainmaster.machines.clouds.cloud import VolumeStore
from trainmaster.machines.renting.factory import CloudFactory, cloud_factory, with_timeout
from trainmaster.runs.overview.volume_use import MONTH_H, unfinished_on, user_of
from trainmaster.store.control.instances import DEFAULT_TIMEOUTS, RentedInstance
from trainmaster.store.control.volumes import RentedVolume
from trainmaster.store.failures import Failures
from trainmaster.sync.rebuild_state import refuse_incomplete
from trainmaster.sync.workspace import Workspace

LEASE_OVER = "lease_over"
GONE = "gone"


def with_volume_left(
    workspace: Workspace, instance: RentedInstance, error: CloudError
) -> CloudError:
    """Why an instance failed, with the volume that was created for it and stays."""
    volume = workspace.control.volumes.find(instance.volume) if instance.volume else None
    if volume is None or not volume.open or volume.created_t is None:
        return error
    left = (
        f"The volume {volume.name} stays for the next request, and costs "
        f"{usd_text(volume.usd_per_h * MONTH_H)} a month; {command('release', volume.name)} ends "
        "it."
    )
    return CloudError(
        error.code, error.message, f"{error.fix} {left}", error.retryable, error.field
    )


async def create_volume(
    workspace: Workspace, store: VolumeStore, volume: RentedVolume, now: float
) -> RentedVolume:
    """Have a recorded volume created, unless it was. Its `provider_id` stays None while the request
    may have been lost: the provider's list decides.

    Raises:
        CloudError: as `Cloud.create`; after an error that leaves nothing open the record is closed.
    """
    records = workspace.control.volumes
    if volume.provider_id is not None or not volume.open:
        return volume
    listed = [candidate for candidate in await store.volumes() if candidate.tag == volume.tag]
    if listed:
        created_t = volume.create_requested_t or now
        return records.change(volume.tag, provider_id=listed[0].provider_id, created_t=created_t)
    if volume.create_requested_t is not None:
        return volume
    records.change(volume.tag, create_requested_t=now)
    try:
        provider_id = await store.create(volume.tag, volume.size_gb, volume.region)
    except CloudError as error:
        if error.code == "RATE_LIMITED":
            records.change(volume.tag, create_requested_t=None)
        elif not error.outcome_unknown:
            records.change(volume.tag, ended_t=now, end_reason=error.code)
        raise
    return records.change(volume.tag, provider_id=provider_id, created_t=now)


async def advance_volume(
    workspace: Workspace, tag: str, clouds: CloudFactory, now: float
) -> list[str]:
    """Do the next step for a volume that no instance uses, and describe what was done.

    Raises:
        CloudError: its provider can't be reached or refuses; the step can be repeated.
    """
    volume = workspace.control.volumes.find(tag)
    if volume is None or not volume.open or user_of(workspace, volume) is not None:
        return []
    cloud = clouds(volume.provider)
    try:
        return await with_timeout(
            cloud.name, _advance(workspace, cloud.volume_store(), volume, now)
        )
    finally:
        await cloud.disconnect()


async def maintain_volumes(
    workspace: Workspace, failures: Failures, now: float, factory: CloudFactory | None = None
) -> dict[str, list[str]]:
    """The next step for each open volume, and the end of those whose lease is over: unless an
    instance uses one, or it holds checkpoints of unfinished runs, which are never deleted unasked.
    """
    did: dict[str, list[str]] = {}
    for volume in workspace.control.volumes.all(only_open=True):
        with failures.caught(volume.tag):
            if volume.release_requested_t is None and now >= volume.lease_end_t:
                _expire(workspace, volume, now)
            done = await advance_volume(
                workspace, volume.tag, cloud_factory(workspace, factory), now
            )
            if done:
                did[volume.tag] = done
    return did


def _expire(workspace: Workspace, volume: RentedVolume, now: float) -> None:
    refuse_incomplete(workspace)  # what it holds is known by the runs' records
    if user_of(workspace, volume) is None and not unfinished_on(workspace, volume):
        changes = {"release_requested_t": now, "end_reason": LEASE_OVER}
        workspace.control.volumes.change(volume.tag, **changes)


async def _advance(
    workspace: Workspace, store: VolumeStore, volume: RentedVolume, now: float
) -> list[str]:
    records = workspace.control.volumes
    listed = [candidate for candidate in await store.volumes() if candidate.tag == volume.tag]
    if volume.release_requested_t is not None:
        for candidate in listed:
            await store.end(candidate.provider_id)
        if listed and any(candidate.tag == volume.tag for candidate in await store.volumes()):
            return []
        records.change(volume.tag, ended_t=now)
        return ["deleted it"]
    asked_t = volume.create_requested_t or volume.intended_t
    if listed and volume.provider_id is None:
        records.change(volume.tag, provider_id=listed[0].provider_id, created_t=asked_t)
        return ["found it at its provider"]
    if listed or now - asked_t <= DEFAULT_TIMEOUTS.late_s:
        return []
    if any(candidate.tag == volume.tag for candidate in await store.volumes()):
        return []  # one list without it proves nothing
    records.change(volume.tag, ended_t=now, end_reason=GONE)
    return ["closed: its provider does not list it"]
