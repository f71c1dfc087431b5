"""Numbers as people read them: sizes and values."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from trainer_runtime.core.protocol.duration import spoken_duration

if TYPE_CHECKING:
    from trainmaster.words.answers.status import PreparationState


def size(size_bytes: float) -> str:
    """In the largest binary unit of which there is at least one: `12.5 MiB`."""
    value, unit = float(size_bytes), "B"
    for larger in ("KiB", "MiB", "GiB", "TiB"):
        if value < 1024:
            break
        value, unit = value / 1024, larger
    return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"


def value(number: object) -> str:
    """Four significant digits; whole numbers in full, thousands apart."""
    if isinstance(number, bool) or not isinstance(number, int | float):
        return str(number)
    if float(number).is_integer() and abs(number) < 1e15:
        return f"{int(number):,}"
    return f"{number:.4g}"


def preparing(state: PreparationState) -> str:
    """Which step, how much of it, and since when: `data (40 %), for 2 min 5 s`."""
    share = "" if state.share is None else f" ({state.share:.0%})".replace("%", " %")
    return f"{state.step}{share}, for {spoken_duration(state.seconds)}"


def setting(item: object) -> str:
    """As it would stand in the spec."""
    return item if isinstance(item, str) else json.dumps(item)


def usd(amount: float | None) -> str:
    """To the cent, and finer below ten cents."""
    if amount is None:
        return "?"
    return f"{amount:,.4f}" if 0 < amount < 0.1 else f"{amount:,.2f}"
