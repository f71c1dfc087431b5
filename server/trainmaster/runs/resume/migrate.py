"""Migrates a run to another host, from its mirror.

Its record travels whole: to journal, attempts and lineage the new place is what a reboot is. The
supervisor there finds its journal, finds no live process, and resumes from the newest checkpoint
that verifies. So the mirror of the new placement begins as a copy of the old one's.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from trainer_runtime.core.protocol.command import command, option
from trainer_runtime.core.protocol.followed_files import is_appended, is_replaced
from trainmaster.backends import LOCAL, NAMES, RunReceiver
from trainmaster.backends.hosts.tree_files import TreeFile, files_of_folder, list_tree
from trainmaster.errors.errors import HostError, StateError, UsageError
from trainmaster.home.assets import find_assets
from trainmaster.plan.render import Bundle, render_recorded
from trainmaster.runs.diagnosis.attempt_changes import newest_config
from trainmaster.runs.planning.probe_image import try_image
from trainmaster.runs.resume.next_attempt import RefreshInstance, ResumeRequest
from trainmaster.runs.resume.old_placements import stop_placement
from trainmaster.runs.resume.remaining_hosts import on_remaining_hosts
from trainmaster.runs.resume.replan import replanned
from trainmaster.runs.upkeep.further_hosts import place_nodes
from trainmaster.store.control.runs import NewConfig, Placed
from trainmaster.store.mirror import PlacementMirror
from trainmaster.sync.follow import follower_lock
from trainmaster.sync.ingest import ingest_placement
from trainmaster.sync.run_view import RunView, load_view
from trainmaster.sync.workspace import Workspace
from trainmaster.transfers.checkpoint_mirror import bring_wanted

_CHECKPOINTS = "checkpoints"
# For an attempt whose processes were on another host: one that never lives here.
_ELSEWHERE = {"pid": 1, "start_ticks": 0, "epoch": "elsewhere"}


async def migrate(workspace: Workspace, view: RunView, host: str, request: ResumeRequest) -> None:
    """Place a run on another host from its mirror, and record the new host; one on several hosts
    continues on its further ones. May be repeated; nothing has changed until it is recorded.

    Raises:
        StateError: `RUN_IS_RUNNING`, it may live where it was, and it is not to be abandoned there;
            `NOT_MIRRORED`, none of its checkpoints is here.
        UsageError: `BAD_ARGUMENT`, it can't be placed there.
        HostError: the new host refuses or can't be reached.
    """
    run = recorded = view.run
    for name in (host, run.host):
        if name in NAMES and name != LOCAL:
            raise UsageError(
                "BAD_ARGUMENT",
                f"A run can't be migrated to {name} or away from it.",
                "Launch it again on the other host.",
                field="host",
            )
    backend = workspace.backend(host)
    is_on_several = run.config.compute.nodes > 1
    if not is_on_several:
        run = await replanned(workspace, run, host, request.confirm)
    await try_image(backend, run.document, run.plan.get("requirements", ()))
    if not request.abandon:
        view = await _refreshed(workspace, view, request.refresh_instance)
        _refuse_unless_over(view)
    if not view.host_is_gone and not await _drain(workspace, view):
        workspace.control.leave_behind(run.run_id, run.host, time.time())
    old = workspace.mirror.of(run.run_id, run.placement)
    if request.start != "scratch":
        _refuse_without_checkpoint(view, old)
    new = workspace.mirror.of(run.run_id, run.placement + 1)
    async with follower_lock(workspace.home, [run.host]):
        await asyncio.to_thread(_copy_mirror, old, new)
    if is_on_several:
        run = await on_remaining_hosts(workspace, run, host, newest_config(workspace, view))
    folder = await backend.folder(run.run_id)
    bundle = render_recorded(run.document, run.plan, find_assets())
    desired = json.dumps(view.desired.to_dict()).encode()
    files = await asyncio.to_thread(_files, bundle, desired, new)
    await RunReceiver.of(backend).put_run(run.run_id, files)
    await place_nodes(workspace, run, {"desired.json": desired})
    new_config = None if run is recorded else NewConfig(run.spec, run.document, run.plan)
    where = Placed(host, backend.launcher_name, folder)
    if workspace.control.place_elsewhere(run, where, time.time(), new_config):
        ingest_placement(workspace.metrics, new, run.run_id, run.placement + 1)


async def _refreshed(
    workspace: Workspace, view: RunView, refresh_instance: RefreshInstance
) -> RunView:
    """The run once its instance's record is current; unchanged without a provider's answer."""
    instance = workspace.control.instances.by_host(view.run.host)
    if instance is None:
        return view
    with suppress(HostError):
        await refresh_instance(workspace, instance.tag)
    return load_view(workspace, view.run.run_id)


async def _drain(workspace: Workspace, view: RunView) -> bool:
    """Copy what only the old host has, and stop what may run there, if it can be reached; whether
    nothing runs there any more, or a stop was delivered."""
    over = view.ended
    with suppress(HostError, TimeoutError):
        if not over:
            await stop_placement(workspace, view, view.run.host)
            over = True
        await bring_wanted(workspace, view.run.run_id)
    return over


def _refuse_unless_over(view: RunView) -> None:
    """Raises:
    StateError: `RUN_IS_RUNNING`.
    """
    run = view.run
    if view.host_is_gone or (view.ended and run.closed):
        return
    raise StateError(
        "RUN_IS_RUNNING",
        f"Run {run.run_id} may still be alive on {run.host}: its end is not confirmed.",
        f"Stop it and wait for its end, or release the host ({command('release', run.host)}). "
        f"{command('resume', run.run_id, '--host', 'HOST', '--abandon')} places it elsewhere all "
        "the same: what it still does there is lost.",
    )


def _refuse_without_checkpoint(view: RunView, mirror: PlacementMirror) -> None:
    """Raises:
    StateError: `NOT_MIRRORED`.
    """
    if view.index.resume_from is None or any(mirror.path(_CHECKPOINTS).glob("step-*")):
        return
    if view.run.checkpoint.is_mirrored_to_store and view.record.mirrored_step is not None:
        return  # the new host brings it from there
    raise StateError(
        "NOT_MIRRORED",
        f"Run {view.run.run_id} has checkpoints up to step {view.index.resume_from}, and none of "
        "them is here.",
        f"{option('--from', 'scratch')} restarts. Launch with `checkpoint: {{mirror: operator}}` "
        "to have them here, or with a mirror in an object store (s3://bucket/prefix).",
    )


def _copy_mirror(old: PlacementMirror, new: PlacementMirror) -> None:
    """Start a placement's mirror as a copy of the last one; the rest of an earlier try is removed
    first. Checkpoints never change, and are linked."""
    shutil.rmtree(new.root, ignore_errors=True)
    new.root.mkdir(parents=True)
    for path in _records(old):
        target = new.root / path.relative_to(old.root)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(path, target)
    for folder in old.path(_CHECKPOINTS).glob("step-*"):
        shutil.copytree(folder, new.path(_CHECKPOINTS) / folder.name, copy_function=_link)


def _records(mirror: PlacementMirror) -> Iterator[Path]:
    for path in sorted(mirror.root.rglob("*")):
        name = path.relative_to(mirror.root).as_posix()
        if path.is_file() and (is_appended(name) or is_replaced(name)):
            yield path


def _link(source: str, target: str) -> None:
    try:
        os.link(source, target)
    except OSError:  # another file system, or one without links
        shutil.copy2(source, target)


def _files(bundle: Bundle, desired: bytes, mirror: PlacementMirror) -> list[TreeFile]:
    """The files of the run's folder on the new host."""
    made = {**bundle.files, "desired.json": desired}
    for number in mirror.attempts():
        if mirror.size(f"attempts/{number}/exit.json") == 0:
            identity = json.dumps({"hold": _ELSEWHERE, "trainer": _ELSEWHERE})
            made[f"attempts/{number}/process.json"] = identity.encode()
    records = [file for file in files_of_folder(mirror.root) if file.name not in made]
    return [*list_tree(made, bundle.executable), *records]
