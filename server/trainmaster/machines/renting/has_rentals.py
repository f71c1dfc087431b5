"""Whether boxes are rented here at all: cheap to ask, before anything heavy is imported."""

from __future__ import annotations

from collections.abc import Mapping

from trainmaster.machines.clouds import KEY_NAMES
from trainmaster.store.secret_values import where_kept
from trainmaster.sync.workspace import Workspace
from trainmaster.words.errors import StateError


def is_renting(workspace: Workspace, environment: Mapping[str, str]) -> bool:
    """Whether there may be anything to look after."""
    if workspace.control.boxes.boxes(only_open=True):
        return True
    try:
        return bool(where_kept(workspace.home, KEY_NAMES.values(), environment))
    except StateError:
        return False
