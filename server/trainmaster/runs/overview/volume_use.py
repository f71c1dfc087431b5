"""Network volumes on record: what uses them, what they hold, what they cost. Only reads records."""

from __future__ import annotations

import time
from collections.abc import Sequence

from trainer_runtime.core.protocol.figures import in_utc
from trainmaster.answers.rentals import VolumeRow
from trainmaster.runs.status.cost import spent_usd
from trainmaster.store.control.instances import RentedInstance
from trainmaster.store.control.volumes import RentedVolume
from trainmaster.store.run import Run
from trainmaster.sync.run_view import load_view
from trainmaster.sync.workspace import Workspace

MONTH_H = 720


def user_of(workspace: Workspace, volume: RentedVolume) -> RentedInstance | None:
    """The open instance that a volume is attached to."""
    instances = workspace.control.instances.all(only_open=True)
    return next((instance for instance in instances if instance.volume == volume.tag), None)


def runs_on(workspace: Workspace, volume: RentedVolume) -> list[Run]:
    """The runs whose files are on a volume: those of the hosts that had it attached."""
    instances = workspace.control.instances.all()
    hosts = {instance.host for instance in instances if instance.volume == volume.tag}
    return [run for run in workspace.control.runs() if run.host in hosts and not run.cleaned]


def unfinished_on(workspace: Workspace, volume: RentedVolume) -> list[str]:
    """The runs that could be resumed from checkpoints on a volume, by name."""
    unfinished = []
    for run in runs_on(workspace, volume):
        view = load_view(workspace, run.run_id)
        is_complete = view.progress is not None and view.progress.completed
        if not is_complete and view.index.resume_from is not None:
            unfinished.append(run.name)
    return unfinished


def volume_rows(workspace: Workspace, *, only_open: bool = False) -> list[VolumeRow]:
    """The volumes on record that cost anything, from local records alone."""
    now = time.time()
    volumes = workspace.control.volumes.all(only_open=only_open)
    shown = [volume for volume in volumes if volume.open or spent_usd(volume, now) > 0]
    return [_row(workspace, volume, now) for volume in shown]


def _row(workspace: Workspace, volume: RentedVolume, now: float) -> VolumeRow:
    user = user_of(workspace, volume) if volume.open else None
    runs: Sequence[Run] = runs_on(workspace, volume) if volume.open else ()
    return VolumeRow(
        volume=volume.name,
        tag=volume.tag,
        provider=volume.provider,
        region=volume.region,
        state=volume.state,
        size_gb=volume.size_gb,
        usd_per_h=round(volume.usd_per_h, 4),
        usd_per_month=round(volume.usd_per_h * MONTH_H, 2),
        spent_usd=round(spent_usd(volume, now), 4),
        budget_usd=round(volume.budget_usd, 2),
        used_by=None if user is None else user.host,
        runs=[run.name for run in runs] or None,
        lease_ends_at=in_utc(volume.lease_end_t),
        ended_at=in_utc(volume.ended_t),
        reason=volume.end_reason,
    )
