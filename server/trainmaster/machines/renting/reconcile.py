"""Compare the providers' lists with the records: orphans, ended instances, lost replies."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass

from trainer_runtime.core.protocol.command import command
from trainer_runtime.core.protocol.figures import number_text
from trainmaster.answers.rentals import OrphanRow, ReconcileAnswer, ReleaseAnswer
from trainmaster.errors.confirmation import Confirm, Quote
from trainmaster.errors.errors import CloudError, TrainmasterError
from trainmaster.home.paths import Home
from trainmaster.machines.clouds import Cloud, Instance
from trainmaster.machines.clouds.cloud import Volume
from trainmaster.machines.clouds.volumes import listed_volumes
from trainmaster.machines.renting.factory import CloudFactory, cloud_factory, with_timeout
from trainmaster.machines.renting.instances import advance_instance
from trainmaster.machines.renting.volume_request import home_of
from trainmaster.settings.clouds import CLOUD_NAMES
from trainmaster.store.control.instances import InstanceRecords
from trainmaster.store.failures import as_error
from trainmaster.sync.workspace import Workspace

_POLL_S = 0.5
# Added to the time for which an orphan's end is awaited.
_REPLY_S = 8.0
# Errors of a provider that is not in use; reported only if one of its instances is on record.
_NOT_USED = frozenset({"CLOUD_KEY_MISSING", "CLOUD_UNKNOWN"})


@dataclass(frozen=True, slots=True)
class _Lists:
    """By provider, the instances and volumes it lists, or why it can't be asked."""

    listed: dict[str, list[Instance]]
    volumes: dict[str, list[Volume]]
    not_asked: dict[str, TrainmasterError]


async def reconcile(
    workspace: Workspace, *, factory: CloudFactory | None = None
) -> ReconcileAnswer:
    """List the instances and volumes at every provider with a key, and do the next step for each
    open instance.

    A provider that can't be asked is named in `not_asked`, and nothing is concluded about its
    instances. A provider without a key is named only if one of its instances is on record.
    """
    clouds = cloud_factory(workspace, factory)
    lists = await _list_all(workspace.home, clouds)
    records = workspace.control.instances
    did: dict[str, list[str]] = {}
    for instance in records.all(only_open=True):
        if instance.provider not in lists.listed:
            continue
        try:
            done = await advance_instance(workspace, instance.tag, factory=clouds)
        except Exception as error:  # of this instance alone
            done = [_text(as_error(error, workspace.home, instance.tag))]
        if done:
            did[instance.tag] = done
    did |= await _end_late(workspace.home, records, clouds, lists)
    did |= _reopen_volumes(workspace, lists.volumes)
    orphans = [*find_orphans(workspace, lists.listed), *_volumes(workspace, lists.volumes)]
    next_step = f"Release it: {command('release', orphans[0].instance)}." if orphans else None
    return ReconcileAnswer(
        did=did or None,
        orphans=orphans or None,
        not_asked=_not_asked(records, lists) or None,
        next_step=next_step,
    )


def find_orphans(workspace: Workspace, listed: Mapping[str, Sequence[Instance]]) -> list[OrphanRow]:
    """The instances with a Trainmaster tag and without a record."""
    records = workspace.control.instances
    home_id = records.home_id()
    return [
        OrphanRow(
            instance=instance.tag,
            provider=instance.provider,
            provider_id=instance.provider_id,
            usd_per_h=instance.usd_per_h,
            of_this_home=home_of(instance.tag) == home_id,
        )
        for instances in listed.values()
        for instance in instances
        if home_of(instance.tag) is not None and records.by_tag(instance.tag) is None
    ]


def _volumes(workspace: Workspace, listed: Mapping[str, Sequence[Volume]]) -> list[OrphanRow]:
    """The same of network volumes."""
    on_record = {volume.tag for volume in workspace.control.volumes.all()}
    return [
        OrphanRow(
            instance=volume.tag,
            provider=name,
            provider_id=volume.provider_id,
            size_gb=volume.size_gb,
            usd_per_h=volume.usd_per_h,
            of_this_home=home_of(volume.tag) == workspace.control.instances.home_id(),
        )
        for name, volumes in listed.items()
        for volume in volumes
        if home_of(volume.tag) is not None and volume.tag not in on_record
    ]


async def release_orphan(
    workspace: Workspace, tag: str, confirm: Confirm, wait_s: float, clouds: CloudFactory
) -> ReleaseAnswer:
    """End an instance, or delete a volume, with a Trainmaster tag and without a record.

    Raises:
        CloudError: `INSTANCE_UNKNOWN`, `INSTANCE_STILL_LISTED`; errors of the provider.
    """
    if home_of(tag) is None:
        raise _unknown(tag, ())
    lists = await _list_all(workspace.home, clouds)
    orphans = [*find_orphans(workspace, lists.listed), *_volumes(workspace, lists.volumes)]
    orphan = next((row for row in orphans if row.instance == tag), None)
    if orphan is None:
        raise _unknown(tag, list(lists.not_asked))
    await confirm(Quote("release", json.dumps([tag, "orphan"]), _quote_text(orphan)))
    cloud = clouds(orphan.provider)
    try:
        end = _end_instance if orphan.size_gb is None else _end_volume
        await with_timeout(cloud.name, end(cloud, tag, wait_s), wait_s + _REPLY_S)
    finally:
        await cloud.disconnect()
    return ReleaseAnswer(instance=tag, host=tag, state="ended", spent_usd=0.0)


def _quote_text(orphan: OrphanRow) -> str:
    owner = "this home" if orphan.of_this_home else "another home of the same account"
    if orphan.size_gb is None:
        what = f"End {orphan.instance} at {orphan.provider}: an instance of {owner}"
        lost = "The machine and its disk are deleted; whether a training runs there is unknown."
    else:
        size = f"a network volume of {number_text(orphan.size_gb)} GB"
        what = f"Delete {orphan.instance} at {orphan.provider}: {size} of {owner}"
        lost = "All data on it is deleted; whether there are checkpoints is unknown."
    return f"{what} without a record here. {lost}"


async def _list_all(home: Home, clouds: CloudFactory) -> _Lists:
    """All providers concurrently, so that one that hangs delays no other."""
    lists = _Lists({}, {}, {})

    async def ask(name: str) -> None:
        try:
            cloud = clouds(name)
        except TrainmasterError as error:
            lists.not_asked[name] = error
            return
        try:
            lists.listed[name] = list(await with_timeout(name, cloud.instances()))
            lists.volumes[name] = list(await with_timeout(name, listed_volumes(cloud)))
        except Exception as error:
            lists.not_asked[name] = as_error(error, home, name)
        finally:
            await cloud.disconnect()

    await asyncio.gather(*(ask(name) for name in CLOUD_NAMES))
    in_order: dict[str, list[Instance]] = {
        name: lists.listed[name] for name in CLOUD_NAMES if name in lists.listed
    }
    return _Lists(in_order, lists.volumes, lists.not_asked)


def _not_asked(records: InstanceRecords, lists: _Lists) -> dict[str, str]:
    used = {instance.provider for instance in records.all(only_open=True)}
    return {
        name: _text(error)
        for name, error in lists.not_asked.items()
        if error.code not in _NOT_USED or name in used
    }


async def _end_late(
    home: Home, records: InstanceRecords, clouds: CloudFactory, lists: _Lists
) -> dict[str, list[str]]:
    """End instances that appeared after their record was closed, because the provider took long to
    create them. Their cost is recorded, and they are ended again for as long as they are listed."""
    did: dict[str, list[str]] = {}
    for name, instances in lists.listed.items():
        for listed_instance in instances:
            instance = records.by_tag(listed_instance.tag) if home_of(listed_instance.tag) else None
            if instance is None or instance.open or listed_instance.state == "ending":
                continue
            cloud = clouds(name)
            try:
                await cloud.end(listed_instance.provider_id)
            except Exception as error:
                did[listed_instance.tag] = [_text(as_error(error, home, listed_instance.tag))]
                continue
            finally:
                await cloud.disconnect()
            created_t = instance.created_t or listed_instance.created_t or instance.intended_t
            records.change(instance.tag, created_t=created_t, ended_t=time.time())
            did[listed_instance.tag] = ["ended it: it appeared after its record was closed"]
    return did


def _reopen_volumes(
    workspace: Workspace, listed: Mapping[str, Sequence[Volume]]
) -> dict[str, list[str]]:
    """Open the records of volumes that were closed and are listed, and so cost money: one whose
    deletion was agreed to is deleted by the next step of `volumes.py`, any other one is kept."""
    did: dict[str, list[str]] = {}
    closed = {
        volume_record.tag: volume_record
        for volume_record in workspace.control.volumes.all()
        if not volume_record.open
    }
    for volume in (volume for volumes in listed.values() for volume in volumes):
        if (record := closed.get(volume.tag)) is None:
            continue
        workspace.control.volumes.change(
            record.tag,
            ended_t=None,
            end_reason=record.end_reason if record.release_requested_t else None,
            provider_id=volume.provider_id,
            created_t=record.created_t or record.create_requested_t or record.intended_t,
        )
        did[record.tag] = ["opened its record again: its provider still lists it"]
    return did


async def _end_instance(cloud: Cloud, tag: str, wait_s: float) -> None:
    await _end_and_wait(cloud.name, tag, wait_s, cloud.instances, cloud.end)


async def _end_volume(cloud: Cloud, tag: str, wait_s: float) -> None:
    store = cloud.volume_store()
    await _end_and_wait(cloud.name, tag, wait_s, store.volumes, store.end)


async def _end_and_wait(
    provider: str,
    tag: str,
    wait_s: float,
    listed: Callable[[], Awaitable[Sequence[Instance | Volume]]],
    end: Callable[[str], Awaitable[None]],
) -> None:
    deadline = time.monotonic() + wait_s
    while mine := [rental for rental in await listed() if rental.tag == tag]:
        for rental in mine:
            await end(rental.provider_id)
        if time.monotonic() > deadline:
            raise CloudError(
                "INSTANCE_STILL_LISTED",
                f"{provider} still lists {tag} after its end was requested.",
                f"Try again: {command('release', tag)}.",
                retryable=True,
            )
        await asyncio.sleep(_POLL_S)


def _text(error: TrainmasterError) -> str:
    return f"{error.code}: {error.message}"


def _unknown(name: str, not_asked: Sequence[str]) -> CloudError:
    unasked = f" Could not ask: {', '.join(not_asked)}." if not_asked else ""
    return CloudError(
        "INSTANCE_UNKNOWN",
        f"No rented instance has the name {name!r}.{unasked}",
        f"{command('costs')} lists those on record.",
        retryable=bool(not_asked),
    )
