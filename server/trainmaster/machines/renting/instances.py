"""Advance a rented instance: one idempotent step, or a worker process that repeats steps.

An instance is recorded before its provider is asked to create it, and its provider is asked once.
If the reply is lost, the provider's list decides, for as long as the instance may still appear. An
instance has ended when its provider no longer lists it.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable

from trainer_runtime.core.files.durable import try_lock
from trainmaster.errors.errors import CloudError, HostError, TrainmasterError
from trainmaster.machines.check_host import check_host
from trainmaster.machines.renting.factory import CloudFactory, cloud_factory
from trainmaster.machines.renting.lifecycle import STEPS, Step
from trainmaster.store.control.instances import RecordedError, RentedInstance, RentState
from trainmaster.store.detached import begin_locked
from trainmaster.store.failures import as_error
from trainmaster.sync.workspace import Workspace

_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.2, 5.0
# A later `tick`, command or server starts another worker.
_GIVE_UP_AFTER_S = 3600.0
_CHECK_S = 60.0
_POLL_S = 0.1
_WORKER_COMMAND = "provision-worker"


async def advance_instance(
    workspace: Workspace, tag: str, *, factory: CloudFactory | None = None
) -> list[str]:
    """Do the next step for an instance, and describe what was done. The list is empty if there was
    nothing to do, or if another process holds the instance's lock.

    Raises:
        CloudError: its provider can't be reached or refuses; the step can be repeated.
        HostError: the instance itself refuses.
    """
    lock = try_lock(workspace.home.instance_lock(tag))
    if lock is None:
        return []
    try:
        return await _step(workspace, tag, cloud_factory(workspace, factory))
    finally:
        os.close(lock)


def start_provision_worker(workspace: Workspace, tag: str) -> bool:
    """Start a detached worker process for an instance; True if one was started. Nothing is started
    if no step is pending or a worker is running."""
    instance = workspace.control.instances.find(tag)
    if instance is None or not has_pending_work(instance):
        return False
    lock = workspace.home.instance_lock(instance.tag)
    return begin_locked(workspace.home, lock, _WORKER_COMMAND, instance.tag)


async def provision_worker(
    workspace: Workspace,
    tag: str,
    *,
    lock_descriptor: int | None = None,
    factory: CloudFactory | None = None,
    give_up_after_s: float = _GIVE_UP_AFTER_S,
) -> RentedInstance | None:
    """Repeat steps until none is pending; returns at once if another process holds the lock.

    `lock_descriptor`: the instance's lock, if the caller passed it on. The worker gives up when
    its provider has not answered for `give_up_after_s`.
    """
    lock = lock_descriptor if lock_descriptor is not None else _lock(workspace, tag)
    if lock is None:
        return workspace.control.instances.find(tag)
    try:
        was_ready = _is_ready(workspace, tag)
        await _repeat_steps(workspace, tag, cloud_factory(workspace, factory), give_up_after_s)
    finally:
        os.close(lock)
    if _is_ready(workspace, tag) and not was_ready:
        await _check_new_host(workspace, tag)
    return workspace.control.instances.find(tag)


async def wait_while(
    workspace: Workspace, tag: str, condition: Callable[[RentedInstance], bool], wait_s: float
) -> RentedInstance:
    """Wait until `condition` is false for the instance, or `wait_s` is over, and return it. A
    worker that died is replaced."""
    deadline = time.monotonic() + wait_s
    while True:
        instance = workspace.control.instances.find(tag)
        assert instance is not None  # records are never removed
        if not condition(instance) or time.monotonic() >= deadline:
            return instance
        start_provision_worker(workspace, tag)
        await asyncio.sleep(_POLL_S)


def has_pending_work(instance: RentedInstance) -> bool:
    """Whether a step is pending that needs no further request of the user."""
    if instance.state is RentState.READY:
        return instance.release is not None
    return instance.open


async def _step(workspace: Workspace, tag: str, clouds: CloudFactory) -> list[str]:
    instance = workspace.control.instances.find(tag)
    if instance is None or not instance.open:
        return []
    cloud = clouds(instance.provider)
    try:
        did = await STEPS[instance.state](Step(workspace, cloud, instance, time.time()))
    finally:
        await cloud.disconnect()
    if instance.last_error is not None:
        workspace.control.instances.change(instance.tag, last_error=None)
    return did


async def _repeat_steps(
    workspace: Workspace, tag: str, clouds: CloudFactory, give_up_after_s: float
) -> None:
    pause_s, answered_s = _FIRST_PAUSE_S, time.monotonic()
    while time.monotonic() - answered_s < give_up_after_s:
        try:
            did = await _step(workspace, tag, clouds)
            answered_s = time.monotonic()
        except Exception as error:
            _record_error(workspace, tag, as_error(error, workspace.home, tag))
            did = []
        instance = workspace.control.instances.find(tag)
        if instance is None or not has_pending_work(instance):
            return
        pause_s = _FIRST_PAUSE_S if did else min(1.5 * pause_s, _LONGEST_PAUSE_S)
        await asyncio.sleep(pause_s)


def _record_error(workspace: Workspace, tag: str, error: TrainmasterError) -> None:
    """Record why nothing progresses, for the commands that wait for the instance."""
    recorded = RecordedError.of(error)
    instance = workspace.control.instances.find(tag)
    if instance is not None and instance.last_error != recorded:
        workspace.control.instances.change(tag, last_error=recorded)


def _lock(workspace: Workspace, tag: str) -> int | None:
    return try_lock(workspace.home.instance_lock(tag))


def _is_ready(workspace: Workspace, tag: str) -> bool:
    instance = workspace.control.instances.find(tag)
    return instance is not None and instance.state is RentState.READY


async def _check_new_host(workspace: Workspace, tag: str) -> None:
    """Check the host once, so that `hosts` shows its GPUs and its problems."""
    instance = workspace.control.instances.find(tag)
    if instance is None:
        return
    try:
        await check_host(workspace, instance.host, within_s=_CHECK_S)
    except (HostError, CloudError):
        return  # it has ended already
