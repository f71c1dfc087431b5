"""The lease of an instance, when it ends and how it terminates itself: `lease.json` in its root."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

from trainer_runtime.core.decoding import JsonRecord
from trainer_runtime.core.protocol.progress import Progress

LEASE = "lease.json"
FORMAT_VERSION = 1
# The minimum and maximum time between the request to save and the instance's end.
LEAST_TO_STOP_S, MOST_TO_STOP_S = 300.0, 1800.0
# Assumed speed of writing a checkpoint until it was measured: of slow disks.
DISK_BYTES_PER_S = 100e6
# The same of mirroring one: slow disks, and slow connections to the client and to object stores.
_BYTES_PER_S = {
    "host:": DISK_BYTES_PER_S,
    "operator": 5e6,
    **dict.fromkeys(("s3://", "gs://", "az://"), 20e6),
}


@dataclass(frozen=True, slots=True)
class OwnEnd(JsonRecord):
    """How a host has itself ended: a request of `method` to `url` with the key of `key_variable`,
    which is good for nothing else and which it has already. Never holds a key.

    `tried_by`: the method of a harmless request to `url` that shows whether the key is accepted, ""
    where the provider documents that it is.
    """

    method: str = ""
    url: str = ""
    key_variable: str = ""
    tried_by: str = ""


@dataclass(frozen=True, slots=True)
class Lease(JsonRecord):
    """Written by the client only, always replaced as a whole.

    `end_t`: Unix seconds by which the instance must be terminated. `own_end`: how it terminates
    itself, None where its provider has no key for that. `stop_before_s`: how long before the end
    trainers are asked to save; None: as long as each needs, as measured.
    """

    tag: str
    provider: str
    provider_id: str
    end_t: float
    own_end: OwnEnd | None = None
    stop_before_s: float | None = None

    def to_dict(self) -> dict[str, Any]:
        return {"v": FORMAT_VERSION, **asdict(self)}


def stop_t(lease: Lease, needed_s: float) -> float:
    """When a trainer that needs `needed_s` to stop has to be asked to save; Unix seconds."""
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
