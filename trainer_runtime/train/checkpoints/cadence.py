"""When to save: by steps, by time, or as the measured cost suggests."""

from __future__ import annotations

import math
from dataclasses import dataclass

from trainer_runtime.core.protocol.duration import parse_duration
from trainer_runtime.train.attempt.config import CheckpointConfig

MEASURED_STEPS = 20
# Mean time between failures of one machine; a guess on the safe side, since a save costs little.
MEAN_TIME_BETWEEN_FAILURES_S = 24 * 3600.0
_SHORTEST_INTERVAL_S = 60.0
# Expected length of the job up to which an interval holds; what is longer takes the last one.
_LONGEST_INTERVALS_S = ((3600.0, 600.0), (4 * 3600.0, 1800.0), (24 * 3600.0, 3600.0))
_LONGEST_INTERVAL_S = 7200.0
# A save by the clock waits for an evaluation that comes within this share of the interval, so that
# the checkpoint carries the metric by which the best one is kept.
_WAIT_FOR_EVALUATION_SHARE = 0.25


@dataclass(slots=True)
class Cadence:
    """Either `every_steps` or `interval_s` is set. `undecided`: the first save decides."""

    every_steps: int | None
    interval_s: float | None
    undecided: bool
    started_at_step: int
    saved_at_s: float

    @classmethod
    def of(cls, config: CheckpointConfig, step: int, now_s: float) -> Cadence:
        if isinstance(config.every, int):
            return cls(config.every, None, config.every_is_auto, step, now_s)
        return cls(None, parse_duration(config.every), config.every_is_auto, step, now_s)

    def is_due(self, step: int, now_s: float, evaluation_in_s: float | None) -> bool:
        """True if a checkpoint belongs after `step`. `evaluation_in_s` until the next evaluation.

        An undecided cadence saves once after 20 steps: that save's cost is what it decides by.
        """
        if self.undecided and step - self.started_at_step == MEASURED_STEPS:
            return True
        if self.every_steps is not None:
            return step % self.every_steps == 0
        if self.interval_s is None or now_s - self.saved_at_s < self.interval_s:
            return False
        longest_wait_s = _WAIT_FOR_EVALUATION_SHARE * self.interval_s
        return evaluation_in_s is None or not 0.0 < evaluation_in_s <= longest_wait_s

    def decide(self, stall_s: float, write_s: float, job_s: float) -> str:
        """Takes the interval that the measured cost asks for; the reason in words."""
        self.interval_s = best_interval_s(stall_s, write_s, job_s)
        self.every_steps = None
        self.undecided = False
        return (
            f"a save stalls training for {stall_s:.3f} s and is written in {write_s:.1f} s; "
            f"{job_s / 3600:.1f} h are expected in all: Young/Daly sqrt(2 * stall * 24 h), not "
            "above the table by job length, not under 60 s or 3 writes"
        )


def best_interval_s(stall_s: float, write_s: float, job_s: float) -> float:
    """Seconds between saves: sqrt(2 * cost * MTBF), within bounds.

    Young 1974 (doi:10.1145/361147.361115), Daly 2006 (doi:10.1016/j.future.2004.11.016).
    """
    ideal_s = math.sqrt(2.0 * stall_s * MEAN_TIME_BETWEEN_FAILURES_S)
    longest_s = next(
        (interval_s for length_s, interval_s in _LONGEST_INTERVALS_S if job_s < length_s),
        _LONGEST_INTERVAL_S,
    )
    return max(min(ideal_s, longest_s), _SHORTEST_INTERVAL_S, 3.0 * write_s)
