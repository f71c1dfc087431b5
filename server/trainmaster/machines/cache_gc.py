"""Garbage collection of a host's shared cache."""

from __future__ import annotations

import json
import posixpath

from trainer_runtime.core.answers.cache import CacheAnswer
from trainer_runtime.core.protocol.command import command
from trainmaster.answers.hosts import CacheEntry, GcAnswer
from trainmaster.backends.hosts.runtime_call import Failure, RuntimeCall, runtime_call
from trainmaster.machines.open_host import open_host
from trainmaster.sync.workspace import Workspace

_TIMEOUT_S = 1800.0  # removing a large environment from a network disk is slow


async def collect(workspace: Workspace, name: str, *, dry_run: bool = False) -> GcAnswer:
    """Remove cache entries that no run uses, of this home or on the machine.

    Raises:
        HostError: `HOST_UNKNOWN`; it can't be reached; `ROOT_NOT_WRITABLE`.
    """
    host = open_host(workspace, name)
    failure = Failure(
        f"The cache of {name} can't be searched",
        f"{command('hosts check', name)} finds the cause.",
        code="ROOT_NOT_WRITABLE",
        retryable=False,
    )
    runs = [run for run in workspace.control.runs(only_open=True) if run.host == name]
    used = json.dumps([[dict(run.document), dict(run.plan)] for run in runs])
    try:
        runs_folder = posixpath.join(await host.root(), "runs")
        options = ["--named", *(["--dry-run"] if dry_run else [])]
        call = RuntimeCall(
            "gc",
            [await host.cache(), runs_folder, *options],
            failure,
            _TIMEOUT_S,
            stdin=used.encode(),
            acts=not dry_run,
        )
        answer = await runtime_call(host, call, CacheAnswer.of)
    finally:
        await host.disconnect()
    removed = [CacheEntry.model_validate(item.to_dict()) for item in answer.removed]
    return GcAnswer(
        host=name,
        removed=removed,
        kept=[CacheEntry.model_validate(item.to_dict()) for item in answer.kept],
        freed_bytes=sum(entry.size_bytes for entry in removed),
        dry_run=True if dry_run else None,
    )
