"""What `doctor` says about Kaggle; nothing of it is needed here, and Kaggle is not asked."""

from __future__ import annotations

import importlib.metadata
import importlib.util
from collections.abc import Mapping

from trainmaster.answers.checks import CheckRow, passed, warning
from trainmaster.backends import KAGGLE
from trainmaster.backends.kaggle.credentials import HOW_TO_GET, key_places, missing, with_keys
from trainmaster.backends.kaggle.machine_types import machine_of
from trainmaster.errors.errors import CloudError, TrainmasterError
from trainmaster.home.extras import installing
from trainmaster.home.paths import Home
from trainmaster.settings.settings import KaggleSettings, read_settings
from trainmaster.sync.workspace import Workspace

# The client imports six and does not say that it needs it.
_MODULES = ("kaggle", "six")


def kaggle_checks(home: Home, environment: Mapping[str, str]) -> list[CheckRow]:
    """Its client's package, credentials, and the accelerator of the settings."""
    return [_package(), _credentials(home, environment), _accelerator(home)]


def uses_kaggle(workspace: Workspace, environment: Mapping[str, str]) -> bool:
    """Whether this home has runs at Kaggle, settings for it, or its credentials."""
    try:
        is_set = read_settings(workspace.home).kaggle != KaggleSettings()
        has_keys = bool(key_places(with_keys(workspace.home, environment)))
    except TrainmasterError:  # which is worth a row
        return True
    return is_set or has_keys or any(run.host == KAGGLE for run in workspace.control.runs())


def _accelerator(home: Home) -> CheckRow:
    try:
        name = read_settings(home).kaggle.accelerator
        machine = machine_of(name)
    except TrainmasterError as error:
        return warning("kaggle accelerator", error.message, error.fix)
    return passed("kaggle accelerator", f"{name}: {machine.count} x {machine.gpu}")


def _package() -> CheckRow:
    lacks = [name for name in _MODULES if importlib.util.find_spec(name) is None]
    if not lacks:
        return passed("kaggle package", importlib.metadata.version("kaggle"))
    remedy = f"{installing('kaggle')}, for runs at Kaggle."
    return warning("kaggle package", f"{lacks[0]} is missing", remedy)


def _credentials(home: Home, environment: Mapping[str, str]) -> CheckRow:
    try:
        variables = with_keys(home, environment)
    except CloudError as error:
        return warning("kaggle credentials", error.message, error.fix)
    if places := key_places(variables):
        return passed("kaggle credentials", ", then ".join(places))
    return warning("kaggle credentials", missing(variables), f"For runs at Kaggle: {HOW_TO_GET}")
