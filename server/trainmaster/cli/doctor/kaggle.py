"""What `doctor` says about Kaggle; nothing of it is needed here, and Kaggle is not asked."""

from __future__ import annotations

import importlib.metadata
import importlib.util
from collections.abc import Mapping

from trainmaster.backends.kaggle.credentials import HOW_TO_GET, key_places, missing, with_keys
from trainmaster.words.answers.checks import CheckRow, passed, warning
from trainmaster.words.errors import CloudError
from trainmaster.words.paths import Home

# The client imports six and does not say that it needs it.
_MODULES = ("kaggle", "six")


def kaggle_checks(home: Home, environment: Mapping[str, str]) -> list[CheckRow]:
    """Its client's package, and credentials."""
    return [_package(), _credentials(home, environment)]


def _package() -> CheckRow:
    lacks = [name for name in _MODULES if importlib.util.find_spec(name) is None]
    if not lacks:
        return passed("kaggle package", importlib.metadata.version("kaggle"))
    remedy = "`pip install 'trainmaster[kaggle]'`, for runs at Kaggle."
    return warning("kaggle package", f"without {lacks[0]}", remedy)


def _credentials(home: Home, environment: Mapping[str, str]) -> CheckRow:
    try:
        given = with_keys(home, environment)
    except CloudError as error:
        return warning("kaggle credentials", error.message, error.fix)
    if places := key_places(given):
        return passed("kaggle credentials", ", then ".join(places))
    return warning("kaggle credentials", missing(given), f"For runs at Kaggle: {HOW_TO_GET}")
