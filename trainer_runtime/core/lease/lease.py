"""Until when a box may be used, and how it ends itself: `lease.json` in a host's root."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from trainer_runtime.core.protocol.progress import Progress

LEASE = "lease.json"
FORMAT_VERSION = 1
# Between the word to save and the box's end: at least so long, and at most.
LEAST_TO_STOP_S, MOST_TO_STOP_S = 300.0, 1800.0
# What a second copy of a checkpoint comes to by the second, where nobody has measured it: slow
# disks, and slow lines to the operator.
_BYTES_PER_S = {"host:": 100e6, "operator": 5e6}


@dataclass(frozen=True, slots=True)
class Lease:
    """Written by the operator's side alone, replaced as a whole.

    `end_t`: Unix seconds, at which the box is to be gone. `own_end`: how the box has itself ended,
    by a key that is good for nothing else and that the box has already: {"kind": "http", "method",
    "url", "key_variable"} or {"kind": "command", "command": [...]}, each with another one under
    "otherwise" that is tried where it isn't taken; None where its provider has no such key. Never
    holds a key. `stop_before_s`: how long before the end trainers are told to save; None: as long
    as it takes each, by what was measured.
    """

    tag: str
    provider: str
    provider_id: str
    end_t: float
    own_end: Mapping[str, Any] | None = None
    stop_before_s: float | None = None

    def to_dict(self) -> dict[str, Any]:
        return {"v": FORMAT_VERSION, **asdict(self)}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Lease:
        """Fields it doesn't know are ignored."""
        before = data.get("stop_before_s")
        return cls(
            tag=str(data["tag"]),
            provider=str(data["provider"]),
            provider_id=str(data["provider_id"]),
            end_t=float(data["end_t"]),
            own_end=data.get("own_end"),
            stop_before_s=None if before is None else float(before),
        )


def stop_t(lease: Lease, needed_s: float) -> float:
    """When a trainer has to be told to save, whose end takes `needed_s`; Unix seconds."""
    bounded_s = min(max(LEAST_TO_STOP_S, needed_s), MOST_TO_STOP_S)
    before_s = bounded_s if lease.stop_before_s is None else lease.stop_before_s
    return lease.end_t - before_s


def time_to_stop_s(grace_s: float, mirror: str | None, attempts: Iterable[Progress]) -> float:
    """What it takes to save, to end and to send the last checkpoint away: the grace, twice the
    longest save so far, and the way of the largest checkpoint to where `checkpoint.mirror` says."""
    longest_s, largest = 0.0, 0
    for progress in attempts:
        longest_s = max(longest_s, progress.longest_save_s)
        sizes = [saved.size_bytes for saved in progress.checkpoints.values()]
        largest = max(largest, *sizes, 0)
    rates = [rate for place, rate in _BYTES_PER_S.items() if (mirror or "").startswith(place)]
    return grace_s + 2 * longest_s + (largest / rates[0] if rates else 0.0)
