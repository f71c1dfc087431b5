"""How many cases the generators of `tests/attack` make, and from which seed.

`TRAINMASTER_ATTACKS` multiplies the cases of every class (1); `make test-attack` sets it high.
`TRAINMASTER_ATTACK_SEED` repeats one.
"""

from __future__ import annotations

import os
import random

TIMES = int(os.environ.get("TRAINMASTER_ATTACKS", "1"))
SEED = int(os.environ.get("TRAINMASTER_ATTACK_SEED", str(random.SystemRandom().randrange(10**6))))


def attack_count(default: int) -> int:
    """The number of cases of a class: `default` in `make test`, more in `make test-attack`."""
    return default * TIMES


def attack_random(name: str) -> random.Random:
    """The numbers of one generator, by its name; prints the seed, which pytest shows on failure."""
    print(f"TRAINMASTER_ATTACK_SEED={SEED} ({name})")
    return random.Random(f"{SEED} {name}")
