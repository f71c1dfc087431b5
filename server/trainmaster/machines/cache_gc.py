"""Garbage collection of a host's shared cache."""

from __future__ import annotations

import json
import posixpath

from trainer_runtime.core.protocol.text import shown
from trainmaster.machines.registry import open_host
from trainmaster.sync.workspace import Workspace
from trainmaster.words.answers.hosts import CacheEntry, GcAnswer
from trainmaster.words.errors import HostError

_TIMEOUT_S = 1800.0  # removing a large environment from a network disk is slow


async def collect(workspace: Workspace, name: str, *, dry_run: bool = False) -> GcAnswer:
    """Remove cache entries that no run uses, of this home or on the machine.

    Raises:
        HostError: `HOST_UNKNOWN`; it can't be reached; `ROOT_NOT_WRITABLE`.
    """
    host = open_host(workspace, name)
    runs = [run for run in workspace.control.runs(only_open=True) if run.host == name]
    used = json.dumps([[dict(run.config), dict(run.plan)] for run in runs])
    try:
        cache = await host.cache()
        done = await host.run(
            [
                *(await host.python(), "-m", "trainer_runtime", "gc"),
                *(cache, posixpath.join(await host.root(), "runs"), "--named"),
                *(["--dry-run"] if dry_run else []),
            ],
            folder=await host.runtime(),
            stdin=used.encode(),
            timeout_s=_TIMEOUT_S,
        )
        answer = json.loads(done.output)
    except ValueError as error:
        output = shown(done.errors.strip()[-300:].replace("\n", " ").encode())
        raise HostError(
            "ROOT_NOT_WRITABLE",
            f"The cache {cache} on {name} can't be read: {output}",
            f"Run `trainmaster hosts check {name}` for the cause.",
        ) from error
    finally:
        await host.disconnect()
    removed = [CacheEntry.model_validate(entry) for entry in answer["removed"]]
    return GcAnswer(
        host=name,
        removed=removed,
        kept=[CacheEntry.model_validate(entry) for entry in answer["kept"]],
        freed_bytes=sum(entry.size_bytes for entry in removed),
        dry_run=True if dry_run else None,
    )
