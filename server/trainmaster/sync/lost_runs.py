"""Whether `control.db` lacks runs: it was replaced by an older copy, or another home's.

A host's runs that are not on record are found by searching it. What was known then is kept by host.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping
from typing import Any

from trainer_runtime.core.decoding import DecodingError, decode_fields
from trainer_runtime.core.files.durable import write_atomic
from trainer_runtime.core.protocol.command import command
from trainmaster.backends import LOCAL
from trainmaster.sync.workspace import Workspace

# A host is searched again after so long, and at once where control.db was replaced.
_SEARCH_EVERY_S = 86400.0


def searched_hosts(workspace: Workspace) -> list[str]:
    """The hosts that may have runs which are not on record."""
    return [LOCAL, *(host.name for host in workspace.control.hosts())]


def lost_runs(workspace: Workspace) -> str | None:
    """That runs may not be on record until the hosts are searched, in words; None where nothing
    hints at that, and where a home takes no more, so that no tick could record them."""
    if workspace.control.unwritable is not None:
        return None
    unknown = _unknown(workspace)
    hosts = searched_hosts(workspace)
    if not any(_may_lack(workspace, _read(workspace, host), unknown) for host in hosts):
        return None
    files = f", which has files of {len(unknown)} more" if unknown else ""
    return (
        f"control.db was replaced or restored in this home{files}: runs may be missing here until "
        f"{command('tick')} has searched the hosts"
    )


def is_search_due(workspace: Workspace, host: str) -> bool:
    searched = _read(workspace, host)
    age_s = time.time() - float(searched.get("t") or 0.0)
    is_recent = 0 <= age_s < _SEARCH_EVERY_S
    return not is_recent or _may_lack(workspace, searched, _unknown(workspace))


def record_search(workspace: Workspace, host: str) -> None:
    path = workspace.home.searched(host)
    path.parent.mkdir(parents=True, exist_ok=True)
    unknown = sorted(_unknown(workspace))
    searched = {"t": time.time(), "control": _file(workspace), "unknown": unknown}
    write_atomic(path, json.dumps(searched).encode())


def _may_lack(workspace: Workspace, searched: Mapping[str, Any], unknown: set[str]) -> bool:
    """An older copy may have got the number of the file that it replaced."""
    is_replaced = searched.get("control", _file(workspace)) != _file(workspace)
    return is_replaced or not unknown.issubset(searched.get("unknown") or ())


def _file(workspace: Workspace) -> int:
    """What changes where control.db is replaced by another file."""
    return workspace.home.control_db.stat().st_ino


def _unknown(workspace: Workspace) -> set[str]:
    """The runs that have files in the home and are not on record."""
    try:
        mirrored = os.listdir(workspace.mirror.root)
    except OSError:
        return set()
    return set(mirrored) - workspace.control.run_ids()


def _read(workspace: Workspace, host: str) -> Mapping[str, Any]:
    path = workspace.home.searched(host)
    try:
        return decode_fields(path.read_bytes(), path.name).values
    except (OSError, DecodingError):
        return {}
