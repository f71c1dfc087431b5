"""Checkpoints that are exempt from pruning because a rewind may need them.

The supervisor lists them in a file in the run's folder; every pruning reads that file.
"""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import Any

from trainer_runtime.core.decoding import DecodingError, decode_fields

PINNED_CHECKPOINTS = "held_checkpoints.json"


def pinned_document(steps: Collection[int]) -> dict[str, Any]:
    """What the file holds."""
    return {"steps": sorted(steps)}


def pinned_steps(root: Path) -> frozenset[int]:
    """The steps that the run in the folder `root` holds; none where no file says so."""
    try:
        return frozenset(
            decode_fields((root / PINNED_CHECKPOINTS).read_bytes(), PINNED_CHECKPOINTS).integers(
                "steps"
            )
        )
    except (OSError, DecodingError):
        return frozenset()
