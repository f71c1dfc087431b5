"""Whether this home rents instances: a cheap check before heavy imports."""

from __future__ import annotations

from collections.abc import Mapping

from trainmaster.errors.errors import StateError
from trainmaster.settings.clouds import KEY_NAMES
from trainmaster.store.secret_values import where_kept
from trainmaster.sync.workspace import Workspace


def has_rentals(workspace: Workspace, environment: Mapping[str, str]) -> bool:
    """Whether an instance or volume is open, or a provider has a key and may list orphans."""
    control = workspace.control
    if control.instances.all(only_open=True) or control.volumes.all(only_open=True):
        return True
    try:
        return bool(where_kept(workspace.home, KEY_NAMES.values(), environment))
    except StateError:
        return False
