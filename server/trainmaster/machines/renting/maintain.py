"""Maintenance of all rented instances, once: for ticks, and for a server that starts."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Awaitable
from dataclasses import dataclass, field

from trainmaster.machines.renting.factory import CloudFactory
from trainmaster.machines.renting.has_rentals import has_rentals
from trainmaster.machines.renting.idle import release_due
from trainmaster.machines.renting.instances import advance_instance, start_provision_worker
from trainmaster.machines.renting.reconcile import reconcile
from trainmaster.sync.workspace import Workspace
from trainmaster.words.answers.rentals import ReconcileAnswer
from trainmaster.words.errors import TrainmasterError

# For one instance, and for the lists of all providers; the next call repeats what takes longer.
_INSTANCE_S = 60.0
_LISTS_S = 90.0


@dataclass(frozen=True, slots=True)
class MaintenanceReport:
    """`did`: by instance, what was done; `failed`: by instance or provider, what was not."""

    did: dict[str, list[str]] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)


async def maintain_instances(
    workspace: Workspace, *, factory: CloudFactory | None = None, now: float | None = None
) -> MaintenanceReport:
    """Release idle and expiring instances, do the next step for each open one, and compare the
    providers' lists with the records. A failure of one does not stop the others; bounded in time.

    Does nothing if no instance is open and no provider has a key.
    """
    report = MaintenanceReport()
    if not has_rentals(workspace, os.environ):
        return report
    try:
        due = release_due(workspace, time.time() if now is None else now)
    except TrainmasterError as error:  # unreadable settings: leases must end all the same
        due, report.failed["settings"] = {}, _text(error)
    for tag, why in due.items():
        report.did[tag] = [f"is released: {why}"]
    for instance in workspace.control.instances.all(only_open=True):
        start_provision_worker(workspace, instance.tag)
        step = _step(workspace, instance.tag, report, factory)
        await _attempt(report, instance.tag, step, _INSTANCE_S)
    await _attempt(report, "lists", _reconcile(workspace, report, factory), _LISTS_S)
    return report


async def _step(
    workspace: Workspace, tag: str, report: MaintenanceReport, factory: CloudFactory | None
) -> None:
    did = await advance_instance(workspace, tag, factory=factory)
    if did:
        report.did.setdefault(tag, []).extend(did)


async def _reconcile(
    workspace: Workspace, report: MaintenanceReport, factory: CloudFactory | None
) -> None:
    found: ReconcileAnswer = await reconcile(workspace, factory=factory)
    for tag, did in (found.did or {}).items():
        report.did.setdefault(tag, []).extend(did)
    for orphan in found.orphans or ():
        text = f"has no record here, and costs money: `trainmaster release {orphan.instance}`"
        report.did.setdefault(orphan.instance, []).append(text)
    report.failed.update(found.not_asked or {})


async def _attempt(
    report: MaintenanceReport, name: str, work: Awaitable[None], within_s: float
) -> None:
    try:
        async with asyncio.timeout(within_s):
            await work
    except TrainmasterError as error:
        report.failed[name] = _text(error)
    except TimeoutError:
        report.failed[name] = f"TIMEOUT: more than {within_s:.0f} s"
    except Exception as error:  # a defect of ours: the other leases must end all the same
        report.failed[name] = f"INTERNAL: {type(error).__name__}"


def _text(error: TrainmasterError) -> str:
    return f"{error.code}: {error.message}"
