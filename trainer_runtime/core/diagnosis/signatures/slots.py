"""What is read out of a failure's text: numbers, and names of closed lists (named_packages.py).

No other text of a log is passed on.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping

from trainer_runtime.core.diagnosis.signatures.named_packages import (
    package_of,
    setting_of,
    version_of,
)
from trainer_runtime.core.protocol.finding import Slot

Slots = dict[str, Slot]

_GIB = {
    "": 1 / 2**30,
    "bytes": 1 / 2**30,
    "KIB": 1 / 2**20,
    "MIB": 1 / 2**10,
    "GIB": 1.0,
    "TIB": 2.0**10,
}
_LARGEST_GIB = 2.0**20
_RANK = re.compile(
    r"^\s*\[?(?:[Rr]ank ?|RANK )(\d{1,6})\]?\s*:?|^\s*(\d{1,5}): |\[[Rr]ank ?(\d{1,6})\]"
)


def slots_of(groups: Mapping[str, str | None]) -> Slots:
    """The validated values of a pattern's named groups; invalid ones are left out."""
    slots: Slots = {}
    for name, text in groups.items():
        slot, read = _READERS[name]
        value = read(text) if text else None
        if value is not None:
            slots[slot] = value
    unallocated, asked = slots.pop("unallocated_gib", 0), slots.get("asked_gib", math.inf)
    if not isinstance(unallocated, str) and not isinstance(asked, str) and unallocated > asked:
        slots["fragmented_gib"] = unallocated
    return slots


def rank_of(line: str) -> int | None:
    """The rank that a launcher or logger put before its line: `[rank3]:`, `[Rank 3]`, `3: `."""
    match = _RANK.search(line)
    return int(next(group for group in match.groups() if group)) if match else None


def _gib(text: str) -> float | None:
    number = re.match(r"[\d.]+", text)
    unit = text[number.end() :].strip() if number else ""
    factor = _GIB.get(unit if unit == "bytes" else unit.upper())
    value = _float(number.group()) if number else None
    if factor is None and unit.upper() in ("KB", "MB", "GB", "TB"):
        factor = _GIB[f"{unit[0].upper()}IB"]
    if value is None or factor is None or not 0 < value * factor < _LARGEST_GIB:
        return None
    return round(value * factor, 6)


def _float(text: str) -> float | None:
    try:
        value = float(text.rstrip("."))
    except ValueError:
        return None
    return value if math.isfinite(value) else None


def _count(limit: int) -> Callable[[str], int | None]:
    def read(text: str) -> int | None:
        return int(text) if text.isascii() and text.isdigit() and int(text) <= limit else None

    return read


def _seconds(text: str) -> float | None:
    milliseconds = _count(10**12)(text)
    return None if milliseconds is None else round(milliseconds / 1000, 3)


_READERS: dict[str, tuple[str, Callable[[str], Slot | None]]] = {
    "asked": ("asked_gib", _gib),
    "asked_nccl": ("nccl_gib", _gib),
    "total": ("total_gib", _gib),
    "total_new": ("total_gib", _gib),
    "held": ("held_gib", _gib),
    "unallocated": ("unallocated_gib", _gib),
    "rank": ("rank", _count(10**6)),
    "local_rank": ("local_rank", _count(10**6)),
    "port_used": ("port", _count(65535)),
    "port": ("port", _count(65535)),
    "xid": ("xid", _count(999)),
    "xid_old": ("xid", _count(999)),
    "sm": ("sm", _count(999)),
    "found_cuda": ("found_cuda", _count(10**6)),
    "timeout_ms": ("timeout_s", _seconds),
    "timeout_gloo": ("timeout_s", _seconds),
    "scale_was": ("loss_scale_was", _float),
    "scale": ("loss_scale", _float),
    "scale_apex": ("loss_scale", _float),
    "scale_fairseq": ("loss_scale", _float),
    "package": ("package", package_of),
    "package_other": ("package", package_of),
    "package_imported": ("package", package_of),
    "importer": ("importer", package_of),
    "bound": ("bound", version_of),
    "version": ("version", version_of),
    "setting": ("setting", setting_of),
    "setting_other": ("setting_other", setting_of),
}
