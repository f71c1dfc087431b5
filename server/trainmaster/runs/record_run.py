"""Records a new run under the first free name."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from trainer_runtime.core.protocol.desired import Desired
from trainmaster.store import secret_values
from trainmaster.store.control.idempotency import IdempotencyKey
from trainmaster.store.run import Run, new_run_id
from trainmaster.sync.workspace import Workspace


async def record_run(
    workspace: Workspace,
    wanted_name: str,
    new_run: Callable[[str, str], Run],
    desired: Desired,
    key: IdempotencyKey | None,
    *,
    secrets: Mapping[str, str] | None = None,
) -> Run | None:
    """Record the run that `new_run(run_id, name)` makes; None where its key was taken meanwhile.

    `secrets` are kept first: nothing is ever mirrored of a run without its mask.
    """
    while True:
        name = workspace.control.free_name(wanted_name)
        run = new_run(new_run_id(name), name)
        backend = workspace.backend(run.host)
        secret_values.keep(workspace.home, run.run_id, secrets or {})
        folder = await backend.folder(run.run_id)
        added = workspace.control.add_run(run, desired, backend.launcher_name, folder, key)
        if added == "added":
            return run
        secret_values.forget(workspace.home, run.run_id)
        if added == "key taken":
            return None
