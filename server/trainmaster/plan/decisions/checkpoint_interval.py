"""The checkpoint interval before anything was measured, and the number of checkpoints on disk.

The trainer decides again after 20 measured steps (`trainer_runtime.train.checkpoints.cadence`), by
Young and Daly's optimum under the same ceilings.
"""

from __future__ import annotations

# Hours of the job, and the longest time in seconds between its checkpoints.
_CEILINGS_S = ((1.0, 600.0), (4.0, 1800.0), (24.0, 3600.0))
_LONGEST_S = 7200.0
_NEWEST_AND_SUPERSEDED = 3


def ceiling_s(job_hours: float | None) -> float:
    """The longest time between checkpoints: jobs below 1 h 10 min, 4 h 30 min, 24 h 1 h, else 2 h.

    Ten minutes where the job's length is not known.
    """
    if job_hours is None:
        return _CEILINGS_S[0][1]
    for hours, longest_s in _CEILINGS_S:
        if job_hours < hours:
            return longest_s
    return _LONGEST_S


def kept_checkpoints(steps: int, keep_latest: int, keep_best: int, keep_every: int | None) -> int:
    """The maximum number of checkpoints on disk.

    Those of the retention policy, one being written, and one that waits for its verification
    before an older one is removed; at most one per step, and one being written. After a rewind, two
    superseded ones take the places of the latest but one.
    """
    periodic = steps // keep_every if keep_every else 0
    return min(max(keep_latest, _NEWEST_AND_SUPERSEDED) + keep_best + periodic + 2, steps + 1)
