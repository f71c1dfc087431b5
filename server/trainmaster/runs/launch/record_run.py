"""Records new runs under the first free names."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from trainer_runtime.core.protocol.desired import Desired
from trainmaster.store import secret_values
from trainmaster.store.control.idempotency import IdempotencyKey
from trainmaster.store.run import Run
from trainmaster.store.run_id import new_run_id
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
    recorded = await record_runs(
        workspace,
        [wanted_name],
        lambda _, run_id, name: new_run(run_id, name),
        desired,
        key,
        secrets=secrets,
    )
    return None if recorded is None else recorded[0]


async def record_runs(
    workspace: Workspace,
    wanted_names: Sequence[str],
    new_run: Callable[[int, str, str], Run],
    desired: Desired,
    key: IdempotencyKey | None,
    *,
    secrets: Mapping[str, str] | None = None,
) -> list[Run] | None:
    """As `record_run`, of several runs of one host, all or none; `new_run` is given their index,
    too. The key finds the first of them."""
    while True:
        names: list[str] = []
        for wanted in wanted_names:
            names.append(workspace.control.free_name(wanted, names))
        runs = [new_run(index, new_run_id(name), name) for index, name in enumerate(names)]
        backend = workspace.backend(runs[0].host)
        for run in runs:
            secret_values.keep(workspace.home, run.run_id, secrets or {})
        folders = [await backend.folder(run.run_id) for run in runs]
        added = workspace.control.add_runs(
            list(zip(runs, folders, strict=True)), desired, backend.launcher_name, key
        )
        if added == "added":
            return runs
        for run in runs:
            secret_values.forget(workspace.home, run.run_id)
        if added == "key taken":
            return None
