"""How much a host writes for what others produce, and the free space that it leaves.

A log that somebody else writes may be of any length. The owner of a host may set other bounds, in
`limits.json` in the folder of its runs.
"""

from __future__ import annotations

from dataclasses import dataclass

from trainer_runtime.core.decoding import Fields

# One log may be replaced, or continue behind a hole, so often: each time is recorded.
MOST_REPLACED = 10_000
_GIB = 1 << 30
_MARGIN_BYTES = 512 << 20
_MARGIN_SHARE = 1 / 100
# A small disk has room for a log and for a margin.
_MOST_OF_A_DISK = 1 / 10


@dataclass(frozen=True, slots=True)
class Refusal:
    """The bound that a write would pass: `source`, `run`, `root` or `disk`, or `replaced`."""

    bound: str
    limit: float


@dataclass(frozen=True, slots=True)
class WriteBounds:
    """Bytes. `source`: of one log; `run`: of all files that a run writes for others, `root`: of all
    such runs of a host; `margin`: what stays free on its disk, at least."""

    source: int = 2 * _GIB
    run: int = 4 * _GIB
    root: int = 32 * _GIB
    margin: int | None = None

    @classmethod
    def of(cls, fields: Fields) -> WriteBounds:
        """Raises:
        DecodingError: a value that is there is not a number.
        """
        names = ("source", "run", "root", "margin")
        gib = {name: fields.find_number(f"{name}_gib") for name in names}
        return cls(**{name: int(value * _GIB) for name, value in gib.items() if value is not None})

    def margin_of(self, disk_bytes: int) -> int:
        """What stays free of a disk of this size; by default the larger of 512 MiB and 1 % of it,
        of a small disk a tenth."""
        if self.margin is not None:
            return self.margin
        least = min(_MARGIN_BYTES, int(disk_bytes * _MOST_OF_A_DISK))
        return max(least, int(disk_bytes * _MARGIN_SHARE))
