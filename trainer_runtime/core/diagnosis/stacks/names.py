"""Names shared by the trainer and the processes that request its stacks."""

from __future__ import annotations

import re

# In the environment of every process of an attempt: `<run id>/<attempt>`.
ATTEMPT_VARIABLE = "TRAINMASTER_ATTEMPT"
RANK_VARIABLE = "RANK"
WORLD_VARIABLE = "WORLD_SIZE"
_OF_A_RANK = re.compile(r"stacks-rank(\d{1,6})\.txt")


def stacks_name(rank: int) -> str:
    """The file in an attempt's folder to which a rank and its children write their stacks."""
    return f"stacks-rank{rank}.txt"


def rank_of(name: str) -> int | None:
    """The rank whose stacks are in a file of this name; None for another file."""
    match = _OF_A_RANK.fullmatch(name)
    return int(match.group(1)) if match else None
