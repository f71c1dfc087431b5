"""The random numbers of Trainer's ranks where another number of them resumes.

Trainer finds no state then, or only those of some ranks, and continues without a word with the
numbers that the training began with.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from transformers import set_seed

_OF_ONE, _OF_SEVERAL = "rng_state.pth", "rng_state_*.pth"


def seed_new_ranks(trainer: Any, seed_of_rank: Callable[[int], int], ranks: int) -> None:
    """Has a trainer's ranks begin from a seed of their own where a checkpoint was saved by another
    number than `ranks`; `seed_of_rank`: from that number to this rank's seed."""
    load: Callable[[str | None], None] = trainer._load_rng_state

    def load_rng_state(checkpoint: str | None) -> None:
        saved = 0 if checkpoint is None else _saved_ranks(Path(checkpoint))
        if saved in (0, ranks):
            load(checkpoint)
        else:
            set_seed(seed_of_rank(saved))

    trainer._load_rng_state = load_rng_state


def _saved_ranks(checkpoint: Path) -> int:
    """By how many ranks it was saved; 0 where it has no states, as one of another program's."""
    if (checkpoint / _OF_ONE).exists():
        return 1
    return sum(1 for _ in checkpoint.glob(_OF_SEVERAL))
