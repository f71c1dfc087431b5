"""What runs share on a host, and getting rid of what none uses any more."""

from __future__ import annotations

import json
import posixpath

from trainer_runtime.core.answers.cache import CacheAnswer
from trainer_runtime.core.decoding import MAX_DOCUMENT_BYTES, decode_fields
from trainer_runtime.core.protocol.text import shown
from trainmaster.machines.registry import open_host
from trainmaster.sync.workspace import Workspace
from trainmaster.words.answers.hosts import CacheEntry, GcAnswer
from trainmaster.words.errors import HostError

_TIMEOUT_S = 1800.0  # a large environment on a network disk takes its time to be removed


async def collect(workspace: Workspace, name: str, *, dry_run: bool = False) -> GcAnswer:
    """Remove from a host's cache what no run uses: none of this home, and none on the machine.

    Raises:
        HostError: `HOST_UNKNOWN`; it can't be reached; `ROOT_NOT_WRITABLE`.
    """
    host = open_host(workspace, name)
    runs = [run for run in workspace.control.runs(only_open=True) if run.host == name]
    named = json.dumps([[dict(run.document), dict(run.plan)] for run in runs])
    try:
        cache = await host.cache()
        done = await host.run(
            [
                *(await host.python(), "-m", "trainer_runtime", "gc"),
                *(cache, posixpath.join(await host.root(), "runs"), "--named"),
                *(["--dry-run"] if dry_run else []),
            ],
            folder=await host.runtime(),
            stdin=named.encode(),
            timeout_s=_TIMEOUT_S,
        )
        answer = CacheAnswer.of(decode_fields(done.output, "gc", max_bytes=MAX_DOCUMENT_BYTES))
    except ValueError as error:
        told = shown(done.errors.strip()[-300:].replace("\n", " ").encode())
        raise HostError(
            "ROOT_NOT_WRITABLE",
            f"The cache {cache} on {name} can't be looked through: {told}",
            f"`trainmaster hosts check {name}` tells what is wrong with it.",
        ) from error
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
