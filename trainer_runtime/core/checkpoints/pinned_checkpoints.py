"""Checkpoints that stay although their turn to be pruned has come: a rewind may need them.

The supervisor names them in a file beside the run's others, whoever prunes reads it each time.
"""

from __future__ import annotations

import json
from collections.abc import Collection
from pathlib import Path
from typing import Any

HELD_CHECKPOINTS = "held_checkpoints.json"


def held_document(steps: Collection[int]) -> dict[str, Any]:
    """What the file holds."""
    return {"steps": sorted(steps)}


def held_steps(root: Path) -> frozenset[int]:
    """The steps that the run in the folder `root` holds; none where no file says so."""
    try:
        steps = json.loads((root / HELD_CHECKPOINTS).read_bytes())["steps"]
        return frozenset(step for step in steps if type(step) is int)
    except (OSError, RecursionError, ValueError, KeyError, TypeError):
        return frozenset()
