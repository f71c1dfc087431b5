"""Release a network volume: refuse what would be lost unasked, get agreement, delete it."""

from __future__ import annotations

import asyncio
import json
import time

from trainer_runtime.core.protocol.command import command
from trainer_runtime.core.protocol.figures import usd_text
from trainmaster.answers.rentals import ReleaseAnswer
from trainmaster.errors.confirmation import Confirm, Quote
from trainmaster.errors.errors import StateError
from trainmaster.machines.renting.factory import CloudFactory
from trainmaster.machines.renting.volume_request import volume_in_use
from trainmaster.machines.renting.volumes import advance_volume
from trainmaster.runs.overview.volume_use import runs_on, unfinished_on, user_of
from trainmaster.runs.status.cost import spent_usd
from trainmaster.store.control.volumes import RentedVolume
from trainmaster.sync.rebuild_state import refuse_incomplete
from trainmaster.sync.workspace import Workspace

_POLL_S = 0.5


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
        volume = await _agree(workspace, volume, confirm, force)
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


async def _agree(
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
    text = _quote_text(workspace, volume, unfinished)
    await confirm(Quote("release", question, text))
    if (user := user_of(workspace, volume)) is not None:  # attached while the user was asked
        raise volume_in_use(volume, user.host)
    return workspace.control.volumes.change(
        volume.tag, release_requested_t=time.time(), end_reason="released"
    )


def _quote_text(workspace: Workspace, volume: RentedVolume, unfinished: list[str]) -> str:
    spent = spent_usd(volume, time.time())
    runs = [run.name for run in runs_on(workspace, volume) if run.name not in unfinished]
    text = [
        f"Delete the volume {volume.name} ({volume.size_gb} GB at {volume.provider}), which has "
        f"cost {usd_text(spent)}, with all data on it.",
        *([f"Lost: checkpoints of the unfinished {', '.join(unfinished)}."] if unfinished else []),
        *([f"Also there: files of {', '.join(runs)}."] if runs else []),
    ]
    return " ".join(text)
