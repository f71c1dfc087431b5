"""How the trainer and whoever asks it for its stacks find each other."""

from __future__ import annotations

import re

# Every process of an attempt carries it in its environment: `<run id>/<attempt>`.
ATTEMPT_VARIABLE = "TRAINMASTER_ATTEMPT"
RANK_VARIABLE = "RANK"
WORLD_VARIABLE = "WORLD_SIZE"
_OF_A_RANK = re.compile(r"stacks-rank(\d{1,6})\.txt")


def stacks_name(rank: int) -> str:
    """The file of an attempt's folder into which a rank and its children write their stacks."""
    return f"stacks-rank{rank}.txt"


def rank_of(name: str) -> int | None:
    """The rank whose stacks a file of this name takes; None for another file."""
    found = _OF_A_RANK.fullmatch(name)
    return int(found.group(1)) if found else None
