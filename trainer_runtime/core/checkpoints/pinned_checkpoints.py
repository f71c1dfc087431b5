"""Checkpoints that stay although their turn to be pruned has come: a rewind may need them.

The supervisor names them in a file beside the run's others, whoever prunes reads it each time.
"""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import Any

from trainer_runtime.core.decoding import DecodingError, decode_fields

HELD_CHECKPOINTS = "held_checkpoints.json"


def held_document(steps: Collection[int]) -> dict[str, Any]:
    """What the file holds."""
    return {"steps": sorted(steps)}


def held_steps(root: Path) -> frozenset[int]:
    """The steps that the run in the folder `root` holds; none where no file says so."""
    try:
        return frozenset(
            decode_fields((root / HELD_CHECKPOINTS).read_bytes(), HELD_CHECKPOINTS).integers(
                "steps"
            )
        )
    except (OSError, DecodingError):
        return frozenset()
