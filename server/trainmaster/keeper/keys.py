"""Keys that a timer would miss: a shell's variables are not passed to it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from trainmaster.alerts.destinations import destinations
from trainmaster.errors.errors import StateError
from trainmaster.settings.clouds import KEY_NAMES
from trainmaster.store.secret_values import stored_names
from trainmaster.sync.workspace import Workspace

KAGGLE_KEYS = ("KAGGLE_API_TOKEN", "KAGGLE_USERNAME", "KAGGLE_KEY")


def lacking_keys(workspace: Workspace, environment: Mapping[str, str]) -> list[str]:
    """Variables that are in use here and do not stand in the home's secrets.env: those of the
    environment, and those of providers that something is rented from. Names alone, no values."""
    in_use = {name for name in (*KEY_NAMES.values(), *KAGGLE_KEYS) if environment.get(name)}
    in_use |= {name for name in _of_destinations(workspace) if environment.get(name)}
    control = workspace.control
    rented = {rental.provider for rental in control.instances.all(only_open=True)}
    rented |= {rental.provider for rental in control.volumes.all(only_open=True)}
    in_use |= {KEY_NAMES[name] for name in rented if name in KEY_NAMES}
    try:
        return sorted(in_use - stored_names(workspace.home))
    except StateError:
        return sorted(in_use)


def _of_destinations(workspace: Workspace) -> Iterable[str]:
    try:
        configured = destinations(workspace.home).values()
    except StateError:
        return []
    return [
        destination.url_secret for destination in configured if destination.url_secret is not None
    ]
