"""The hosts of a run on several, and what its supervisor says of them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from trainer_runtime.core.processes.resharding import why_ranks_of
from trainmaster.store.run import Run
from trainmaster.sync.run_view import RunView

CONNECTED, _LOST = "connected", "lost"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


def hosts_of(run: Run) -> list[Mapping[str, object]]:
    """With name, address and cache, the first one first; none of most runs."""
    return list(_each(run.document.get("nodes")))


def members_of(run: Run) -> Sequence[str]:
    """The further hosts of a run; none of most."""
    return [str(host["name"]) for host in hosts_of(run)[1:]]


def can_continue_without_first(run: Run) -> bool:
    """Whether its further hosts can take up the run from a checkpoint that its first one wrote."""
    config = run.config
    is_fixed = config.script is not None or why_ranks_of(config) is not None
    return not is_fixed and bool(members_of(run))


def states_of_nodes(view: RunView) -> dict[str, str]:
    """Of a run on several machines whether each is `connected` or `lost`, as far as its supervisor
    says; the journal is the host's, so that of it only states, and names of a job's nodes, are
    passed on."""
    members, states = members_of(view.run), view.record.nodes
    names = [view.run.host, *members] if members else _nodes_of_job(view)
    return {name: states[name] for name in names if states.get(name) in (CONNECTED, _LOST)}


def _nodes_of_job(view: RunView) -> list[str]:
    named = [name for name in view.record.nodes if _NAME.fullmatch(name)]
    nodes = view.run.config.compute.nodes
    return named[:nodes] if nodes > 1 else []


def has_lost_node(view: RunView) -> bool:
    """Whether the supervisor hears nothing of a node."""
    return _LOST in states_of_nodes(view).values()


def _each(nodes: object) -> Iterator[Mapping[str, object]]:
    if isinstance(nodes, Mapping):
        yield from nodes.get("hosts", ())
