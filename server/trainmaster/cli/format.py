"""How a preparation and a setting read."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from trainer_runtime.core.protocol.figures import share_text, spoken_duration

if TYPE_CHECKING:
    from trainmaster.answers.status import PreparationState


def preparing(state: PreparationState) -> str:
    """Which step, how much of it, and since when: `data (40 %), for 2 min 5 s`."""
    share = "" if state.share is None else f" ({share_text(state.share)})"
    return f"{state.step}{share}, for {spoken_duration(state.seconds)}"


def setting(item: object) -> str:
    """As it would stand in the spec."""
    return item if isinstance(item, str) else json.dumps(item)
