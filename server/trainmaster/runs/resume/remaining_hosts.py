"""A run on several hosts whose first one is gone: continues on its further ones, from the mirror.

The named one takes the first one's place, with the supervisor and the checkpoints; those of the
others that can be reached are its members. Each step keeps its sequences.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from trainer_runtime.core.config import ConfigDocument, RunConfig
from trainer_runtime.core.diagnosis.remedies import value_at
from trainer_runtime.core.policy.patch import apply_sets
from trainer_runtime.core.processes.fewer_nodes import Step, possible_counts, resized
from trainer_runtime.core.processes.nodes import moved
from trainmaster.backends import NodeProber
from trainmaster.errors.errors import HostError, StateError
from trainmaster.runs.status.node_states import can_continue_without_first, hosts_of, members_of
from trainmaster.store.run import Run
from trainmaster.sync.workspace import Workspace

_ENDS_WITHIN_S = 20.0
_FIELDS = (
    "compute.nodes",
    "compute.taking_part",
    "compute.processes",
    "compute.strategy",
    "compute.min_nodes",
    "batch.micro_batch",
    "batch.accumulation",
)


def refuse_unless_remaining(run: Run, host: str) -> None:
    """Raises:
    StateError: `UNSUPPORTED`, a run on several machines can't continue on this host.
    """
    if run.config.compute.nodes < 2 or (
        can_continue_without_first(run) and host in members_of(run)
    ):
        return
    fix = "Resume it where it is, or launch it again."
    if can_continue_without_first(run):
        fix = f"Name one of its further hosts, {' or '.join(members_of(run))}, or launch it again."
    raise StateError(
        "UNSUPPORTED",
        f"Run {run.run_id} trains on several machines, and can't continue on {host}.",
        fix,
        field="host",
    )


async def on_remaining_hosts(
    workspace: Workspace, run: Run, host: str, newest: ConfigDocument
) -> Run:
    """The run as it is on its remaining hosts, `host` first; `newest`: its last attempt's
    configuration. Ends what it still does there, and removes its folders. May be repeated.

    Raises:
        HostError: `host` refuses or can't be reached.
    """
    entries = [entry for entry in hosts_of(run)[1:] if entry["name"] == host]
    await _clear(workspace, run, host)
    others = [entry for entry in hosts_of(run)[1:] if entry["name"] != host]
    for entry in others:
        try:
            async with asyncio.timeout(_ENDS_WITHIN_S):
                await _clear(workspace, run, str(entry["name"]))
        except (TimeoutError, HostError):
            continue  # its member ends by itself, for want of the first host
        entries.append(entry)
    return _run_on(run, entries, newest)


def host_changes(run: Run, newest: ConfigDocument) -> dict[str, Any]:
    """What a resume changes in the last attempt's configuration since that had other hosts; none of
    most."""
    before, now = _names(newest), [entry["name"] for entry in hosts_of(run)]
    if before in ([], now):
        return {}
    there = moved(newest, RunConfig.parse(newest).data.cache_dir, run.config.data.cache_dir)
    sections = {key: value for key, value in there.items() if value != newest[key]}
    fields = {path: value_at(run.document, path) for path in _FIELDS}
    return {**sections, **fields, "nodes": run.document.get("nodes")}


async def _clear(workspace: Workspace, run: Run, host: str) -> None:
    backend = workspace.backend(host)
    await NodeProber.of(backend).end_member(run.run_id)
    await backend.remove(run.run_id, ["."])


def _run_on(run: Run, hosts: Sequence[Mapping[str, object]], newest: ConfigDocument) -> Run:
    """On as many of these hosts as can share a step evenly, the first ones."""
    config = RunConfig.parse(newest)
    step = Step.of(config, {}, config.compute.nodes)
    count = max(possible_counts(step, 1, len(hosts)), default=1)
    least = run.config.compute.min_nodes
    sets: dict[str, Any] = {
        **resized(config, {}, range(count), count),
        "compute.taking_part": list(range(count)),
        "compute.min_nodes": None if least is None or count == 1 else min(least, count),
    }
    old = str(hosts_of(run)[0]["cache"])
    document = apply_sets(moved(run.document, old, str(hosts[0]["cache"])), sets)
    is_alone = count == 1
    document["nodes"] = None if is_alone else {**document["nodes"], "hosts": list(hosts[:count])}
    names = [str(entry["name"]) for entry in hosts[:count]]
    spec = _spec_on(run.spec, names, document["compute"]["min_nodes"])
    return replace(run, host=names[0], spec=spec, document=document)


def _spec_on(text: str, names: Sequence[str], least: int | None) -> str:
    spec = json.loads(text)
    compute = {
        name: value for name, value in (spec.get("compute") or {}).items() if name != "nodes"
    }
    compute["min_nodes"] = least
    return json.dumps(
        {**spec, "host": names[0], "other_hosts": list(names[1:]), "compute": compute}
    )


def _names(config: ConfigDocument) -> list[object]:
    nodes = config.get("nodes")
    hosts = nodes.get("hosts") if isinstance(nodes, Mapping) else None
    listed = hosts if isinstance(hosts, list) else []
    return [entry.get("name") for entry in listed if isinstance(entry, Mapping)]
