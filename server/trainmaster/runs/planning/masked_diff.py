"""Masks a program's diff before it is stored: by the values that are known, and by the form of
others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from trainmaster.home.paths import Home
from trainmaster.store import secret_values
from trainmaster.store.masking import Mask
from trainmaster.store.secret_patterns import mask_patterns


def masked_diff(
    home: Home, secrets: Sequence[str], environment: Mapping[str, str], diff: str
) -> str:
    """The diff without the values of `secrets`, and of all that the home has.

    Raises:
        StateError: `SECRET_MISSING`, `SECRET_INVALID`.
    """
    if not diff:
        return diff
    values = secret_values.maskable_values(home, secrets, environment)
    return mask_patterns(Mask(values).text(diff))
