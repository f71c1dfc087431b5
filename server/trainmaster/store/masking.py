"""The mask that is applied to a run's files before they are mirrored."""

from __future__ import annotations

from trainer_runtime.core.protocol.masking import Mask
from trainmaster.home.paths import Home
from trainmaster.store import secret_values

__all__ = ["Mask", "mask_of"]


def mask_of(home: Home, run_id: str) -> Mask:
    """The mask of the secrets that a run was given; without secrets it masks nothing.

    Raises:
        OSError, ValueError: the values exist but can't be read; then nothing may be mirrored.
    """
    return Mask(secret_values.to_mask(home, run_id))
