"""Removes a run's files from its host: what is removed, required here first, and confirmed."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence

from trainer_runtime.core.protocol.command import command
from trainmaster.alerts.delivery import take_over_alerts
from trainmaster.alerts.send import begin_sending
from trainmaster.answers.runs import CleanAnswer, removed_words
from trainmaster.errors.confirmation import Confirm, Quote
from trainmaster.errors.errors import StateError, UsageError
from trainmaster.runs.attach import detach
from trainmaster.runs.upkeep.advance import fire_alerts
from trainmaster.runs.upkeep.further_hosts import remove_from_members
from trainmaster.runs.upkeep.maintain import until_closed
from trainmaster.store import secret_values
from trainmaster.sync.chosen_run import chosen_run
from trainmaster.sync.mirrored_checkpoints import is_mirrored_here, mirrored_step
from trainmaster.sync.refresh import refresh
from trainmaster.sync.run_view import RunView, refuse_unless_ended, still_running
from trainmaster.sync.workspace import Workspace

_KEPT = ("best", "final")


async def clean(
    workspace: Workspace,
    run: str,
    *,
    keep: Sequence[str] = (),
    dry_run: bool = False,
    force: bool = False,
) -> CleanAnswer:
    """Remove what an ended run left on its host, except `best` and `final` where they are kept.

    An attached training is no longer watched; it continues, and nothing of it is removed.

    The mirror and the metrics are kept: status, logs and metrics still answer.

    Raises:
        StateError: `RUN_NOT_FOUND`, `RUN_IS_RUNNING`; without `force` also `NOT_MIRRORED`.
        UsageError: `BAD_ARGUMENT` for something that can't be kept.
    """
    _refuse_unknown(keep)
    view = await refresh(workspace, chosen_run(workspace, run).run_id)
    if view.run.is_attached and not view.ended and not dry_run:
        view = await detach(workspace, view)
    elif not view.run.is_attached:
        refuse_unless_ended(view)
    if not force:
        _refuse_what_is_not_here(workspace, view)
    backend = workspace.backend(view.run.host)
    there = await backend.contents(view.run.run_id)
    kept = _kept_names(view, keep, there)
    removed = [name for name in there if name not in kept]
    freed, note = 0, None if view.sessions is None else view.sessions.left_behind
    if not dry_run:
        await _until_read(workspace, view.run.run_id)
        freed = await backend.remove(view.run.run_id, removed if kept else ["."])
        freed_there, left = await remove_from_members(workspace, view.run)
        freed += freed_there
        note = _left_on(view, left) if left else note
        workspace.control.set_cleaned(view.run.run_id)
        secret_values.forget(workspace.home, view.run.run_id)
    return CleanAnswer(
        run_id=view.run.run_id,
        host=view.run.host,
        removed=removed,
        freed_bytes=freed,
        kept=sorted(kept),
        dry_run=True if dry_run else None,
        note=note,
    )


def _left_on(view: RunView, hosts: Sequence[str]) -> str:
    return (
        f"Files of {view.run.run_id} are left on {', '.join(hosts)}, which can't be reached or "
        f"was removed. {command('clean', view.run.run_id)} removes them once it is back."
    )


async def clean_agreed(
    workspace: Workspace, run: str, *, keep: Sequence[str] = (), confirm: Confirm
) -> CleanAnswer:
    """`clean`, after a confirmation of what it would remove. Asks the first time even where nothing
    is left to remove: a cleaned run can't be resumed.

    Raises: SpendError, where it was not confirmed; and as `clean`.
    """
    planned = await clean(workspace, run, keep=keep, dry_run=True)
    if planned.removed or not workspace.control.run(planned.run_id).cleaned:
        await confirm(_quote(planned, keep))
    return await clean(workspace, run, keep=keep)


def _refuse_unknown(keep: Sequence[str]) -> None:
    for name in keep:
        if name not in _KEPT:
            raise UsageError(
                "BAD_ARGUMENT",
                f"{name!r} can't be kept.",
                f"Keep any of {', '.join(_KEPT)}.",
                field="keep",
            )


def _kept_names(view: RunView, keep: Sequence[str], there: Sequence[str]) -> set[str]:
    kept = {"final"} if "final" in keep else set()
    if "best" in keep:
        kept |= {entry.path for entry in view.index.entries if entry.step == view.index.best}
    return {name for name in kept if name in there}


async def _until_read(workspace: Workspace, run_id: str) -> None:
    """Raises:
    StateError: `RUN_IS_RUNNING`, the host has not written its last record, or it was not read.
    """
    run = workspace.control.run(run_id)
    if run.cleaned:
        return
    await take_over_alerts(workspace, run)
    await until_closed(workspace, run_id)
    if not workspace.control.run(run_id).closed:
        raise still_running(run_id, "ended, but not yet read to its end")
    fire_alerts(workspace, run_id)  # messages that the host could not send are sent from here
    begin_sending(workspace)


def _refuse_what_is_not_here(workspace: Workspace, view: RunView) -> None:
    """Raises:
    StateError: `NOT_MIRRORED`, the newest checkpoint has to be mirrored, and is not yet.
    """
    newest = view.index.resume_from
    here = mirrored_step(workspace, view) if is_mirrored_here(view.run) else newest
    if newest is not None and not view.run.cleaned and (here is None or here < newest):
        raise StateError(
            "NOT_MIRRORED",
            f"The checkpoint of step {newest} is not here yet; mirrored so far: {here or 'none'}.",
            f"{command('tick')} brings it; {command('clean', view.run.run_id, '--force')} removes "
            "it all the same.",
            retryable=True,
        )


def _quote(planned: CleanAnswer, keep: Sequence[str]) -> Quote:
    """Counts and no names: the run's process chose the names of its files."""
    what = [planned.run_id, planned.host, planned.removed, planned.kept]
    kept = f" Kept: {', '.join(keep)}." if keep else ""
    return Quote(
        action="clean",
        asked=hashlib.sha256(json.dumps(what).encode()).hexdigest(),
        text=f"Remove for good from {planned.host} what {planned.run_id} left there: "
        f"{removed_words(planned.removed)}.{kept} After that it can't be "
        "resumed.",
    )
