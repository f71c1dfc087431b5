"""What `doctor` says about Kaggle; nothing of it is needed here, and Kaggle is not asked."""

from __future__ import annotations

import importlib.metadata
import importlib.util
from collections.abc import Mapping

from trainmaster.backends.kaggle.credentials import HOW_TO_GET, key_places, missing, with_keys
from trainmaster.words.answers.hosts import DoctorCheck
from trainmaster.words.errors import CloudError
from trainmaster.words.paths import Home

# The client imports six and does not say that it needs it.
_MODULES = ("kaggle", "six")


def kaggle_checks(home: Home, environment: Mapping[str, str]) -> list[DoctorCheck]:
    """Its client's package, and credentials."""
    return [_package(), _credentials(home, environment)]


def _package() -> DoctorCheck:
    lacks = [name for name in _MODULES if importlib.util.find_spec(name) is None]
    return DoctorCheck(
        name="kaggle package",
        ok=not lacks,
        found=f"without {lacks[0]}" if lacks else importlib.metadata.version("kaggle"),
        remedy="`pip install 'trainmaster[kaggle]'`, for runs at Kaggle." if lacks else None,
        needed=False,
    )


def _credentials(home: Home, environment: Mapping[str, str]) -> DoctorCheck:
    try:
        given = with_keys(home, environment)
    except CloudError as error:
        found, remedy = error.message, error.fix
        return DoctorCheck(
            name="kaggle credentials", ok=False, found=found, remedy=remedy, needed=False
        )
    places = key_places(given)
    return DoctorCheck(
        name="kaggle credentials",
        ok=bool(places),
        found=", then ".join(places) or missing(given),
        remedy=None if places else f"For runs at Kaggle: {HOW_TO_GET}",
        needed=False,
    )
