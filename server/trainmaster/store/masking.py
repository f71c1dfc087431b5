"""What is masked of a run before anything of it is kept here."""

from __future__ import annotations

from trainer_runtime.core.protocol.masking import Mask
from trainmaster.store import secret_values
from trainmaster.words.paths import Home

__all__ = ["Mask", "mask_of"]


def mask_of(home: Home, run_id: str) -> Mask:
    """The mask of the secrets that a run was given; one that masks nothing where there are none.

    Raises:
        OSError, ValueError: the values are there but can't be read; then nothing may be kept.
    """
    return Mask(secret_values.to_mask(home, run_id))
