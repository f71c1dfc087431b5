"""What a process needs that works with the weights of a run, on the run's host."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

from trainer_runtime.core.protocol.command import command
from trainer_runtime.core.protocol.masking import Mask
from trainmaster.errors.confirmation import Confirm
from trainmaster.errors.errors import HostError, StateError, UsageError
from trainmaster.plan.spec import load_spec
from trainmaster.runs.planning.spec_policy import allow, beyond_policy
from trainmaster.store.secret_values import to_mask_ever
from trainmaster.sync.run_view import RunView
from trainmaster.sync.workspace import Workspace


def mask_of(workspace: Workspace, view: RunView) -> Mask:
    """The host masks as well, by its copy of the values, which it deletes at the run's end."""
    run = view.run
    return Mask(to_mask_ever(workspace.home, run.run_id, run.config.secrets, os.environ))


@contextmanager
def masked_errors(mask: Mask) -> Iterator[None]:
    """What a host says of its failure, without the run's secrets."""
    try:
        yield
    except HostError as error:
        error.message = mask.text(error.message)
        raise


async def allow_model(
    workspace: Workspace, view: RunView, purpose: str, confirm: Confirm | None
) -> None:
    """Ask about code of the run's environment that no person has trusted, as a resume does; its
    program is not run.

    Raises:
        PolicyError, SpendError: what it runs is beyond the caller's policy.
    """
    if not workspace.policy.bound:
        return
    changes = {"host": view.run.host, "script": None}
    spec = load_spec(f"{view.run.spec}\n").model_copy(update=changes)
    launched = beyond_policy(workspace, spec)
    beyond = launched.without(launched, view.run.plan.get("places") or {})
    await allow(workspace, beyond, "resume", f"the model of {view.run.run_id} {purpose}", confirm)


def refuse_without_weights(view: RunView) -> None:
    """Check that the run's host has weights of it.

    Raises:
        UsageError: `UNSUPPORTED` for an attached training.
        StateError: `RUN_ENDED` for one that was cleaned, `NO_CHECKPOINT`.
        HostError: the host can't be reached.
    """
    run = view.run
    if run.is_attached:
        raise UsageError(
            "UNSUPPORTED",
            f"Run {run.run_id} is only watched: Trainmaster has none of its checkpoints.",
            f"Take over its output ({command('adopt', 'FOLDER')}), and use that run.",
            field="run",
        )
    if run.cleaned:
        raise StateError(
            "RUN_ENDED",
            f"Run {run.run_id} was cleaned: its host has no weights of it any more.",
            f"{command('fetch', run.run_id, 'final', 'FOLDER')} brings what was mirrored, if "
            "anything.",
        )
    view.refuse_unreachable()
    if view.index.resume_from is None and not view.index.superseded:
        raise StateError(
            "NO_CHECKPOINT",
            f"Run {run.run_id} has no verified checkpoint yet.",
            f"{command('wait', run.run_id, '--until', 'checkpoint')} returns at its first.",
        )
