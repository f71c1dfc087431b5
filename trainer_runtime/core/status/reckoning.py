"""Where a run's time went: what counts as training, and what was lost to which cause.

Its share of training is the effective training time ratio (ETTR) of Kokolis et al. 2024 (arXiv
2410.21680), section 3: productive time, without what had to be computed again, over the time since
the run was requested, waiting included.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from trainer_runtime.core.policy.endings import EndReason
from trainer_runtime.core.protocol.figures import share_text, spoken_duration
from trainer_runtime.core.protocol.journal import AttemptRecord, Record
from trainer_runtime.core.protocol.lineage import Lineage, lineage_of
from trainer_runtime.core.protocol.progress import Progress, is_overdue
from trainer_runtime.core.protocol.states import ENDED_PLACEMENTS

TRAINING, IDLE, QUEUE = "training", "idle", "queue"
# `other`: within an attempt, between steps, and nothing that was reported.
CAUSES = (
    "crash",
    "rework",
    "stall",
    "save",
    "evaluation",
    "preparation",
    QUEUE,
    IDLE,
    "other",
)
_CLEAN = frozenset(
    reason.value
    for reason in (
        EndReason.COMPLETED,
        EndReason.STOPPED,
        EndReason.TIME_LIMIT,
        EndReason.LEASE_OVER,
        EndReason.PREEMPTED,
        EndReason.SESSION_OVER,
        EndReason.PHASE_MISSED,
    )
)
_QUEUED = frozenset({EndReason.SESSION_OVER.value, EndReason.PREEMPTED.value})
# Less of the time since the start is not worth a word.
_LEAST_SHARE = 0.005


@dataclass(frozen=True, slots=True)
class Part:
    """Seconds with one cause, of an attempt or, from `begin_t` on, of the time after it. `attempt`
    0: before the first; `begin_t` None: within the attempt."""

    attempt: int
    cause: str
    seconds: float
    begin_t: float | None = None


@dataclass(frozen=True, slots=True)
class Reckoning:
    """`parts` add up to `elapsed_s`."""

    elapsed_s: float
    parts: tuple[Part, ...]

    @property
    def ettr(self) -> float | None:
        """The effective training time ratio, 0 to 1; None before anything has run."""
        return self.seconds(TRAINING) / self.elapsed_s if self.elapsed_s > 0 else None

    def seconds(self, cause: str) -> float:
        return sum(part.seconds for part in self.parts if part.cause == cause)

    @property
    def lost_s(self) -> Mapping[str, float]:
        """By cause, what matters of it, the most first."""
        lost = {cause: self.seconds(cause) for cause in CAUSES}
        most_first = sorted(lost.items(), key=lambda item: -item[1])
        least_s = _LEAST_SHARE * self.elapsed_s
        return {cause: seconds for cause, seconds in most_first if seconds > least_s}

    @property
    def words(self) -> str | None:
        """`81 % of 2 h 5 min; lost: crash 12 min, save 3 min`; None where nothing has run."""
        if self.ettr is None:
            return None
        lost = ", ".join(f"{cause} {spoken_duration(s)}" for cause, s in self.lost_s.items())
        whole = f"{share_text(self.ettr, 1)} of {spoken_duration(self.elapsed_s)} was training"
        return whole + (f"; lost: {lost}" if lost else "")


def reckon(
    record: Record, attempts: Sequence[Progress], now: float, since_t: float | None = None
) -> Reckoning:
    """The run's time from `since_t`, when it was requested (None: from its first attempt), to its
    end or `now`, in Unix seconds by the host's clock.

    Steps that a later attempt superseded count as rework, with whatever cause they were lost.
    """
    records = record.attempts
    if not records:
        ended = record.state in ENDED_PLACEMENTS or since_t is None
        waited_s = 0.0 if ended or since_t is None else max(0.0, now - since_t)
        return Reckoning(waited_s, (Part(0, QUEUE, waited_s, since_t),))
    first_t, until_t = records[0].starting_t, _until_t(record, now)
    begin_t = first_t if since_t is None else min(since_t, first_t)
    parts = [Part(0, QUEUE, first_t - begin_t, begin_t)]
    progress_by_number = {progress.attempt: progress for progress in attempts}
    lineage = lineage_of(attempts)
    for attempt, later in zip(records, [*records[1:], None], strict=True):
        next_t = until_t if later is None else later.starting_t
        end_t = min(next_t, next_t if attempt.ended_t is None else attempt.ended_t)
        progress = progress_by_number.get(attempt.number)
        parts += _within(attempt, progress, end_t, lineage)
        parts.append(Part(attempt.number, _between(attempt, later), next_t - end_t, end_t))
    return Reckoning(until_t - begin_t, tuple(part for part in parts if part.seconds > 0))


def _until_t(record: Record, now: float) -> float:
    last = record.attempts[-1]
    if record.state in ENDED_PLACEMENTS and last.ended_t is not None:
        return last.ended_t
    return max(now, last.ended_t or last.starting_t)


def _within(
    attempt: AttemptRecord, progress: Progress | None, end_t: float, lineage: Lineage
) -> Iterable[Part]:
    """The parts of an attempt up to `end_t`, which add up to its length."""

    def part(cause: str, seconds: float) -> Part:
        return Part(attempt.number, cause, seconds)

    spent = None if progress is None else progress.spent
    if progress is None or spent is None or spent.begun_t is None:
        return [part("preparation", end_t - attempt.starting_t)]
    begun_t = min(max(spent.begun_t, attempt.starting_t), end_t)
    mark_t = min(max(spent.mark_t, begun_t), end_t)
    left = _Left(mark_t - begun_t)
    trained_s, stalled_s = left.take(spent.trained_s), left.take(spent.stalled_s)
    evaluated_s, saved_s = left.take(spent.evaluated_s), left.take(spent.saved_s)
    until = lineage.live_until(attempt.number)
    live_s = trained_s if until >= progress.step else min(trained_s, spent.trained_until(until))
    tail_s = end_t - mark_t
    return [
        part("preparation", begun_t - attempt.starting_t),
        part(TRAINING, live_s),
        part("rework", trained_s - live_s),
        part("stall", stalled_s),
        part("evaluation", evaluated_s),
        part("save", saved_s),
        part("other", left.seconds),
        part(_tail(attempt, progress, tail_s), tail_s),
    ]


class _Left:
    """Seconds of which causes take what they claim, as long as there are any."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds

    def take(self, claimed_s: float) -> float:
        taken_s = min(self.seconds, claimed_s)
        self.seconds -= taken_s
        return taken_s


def _tail(attempt: AttemptRecord, progress: Progress, seconds: float) -> str:
    """The cause of the time after the last step that was reported."""
    if attempt.ended_t is None:
        usual_s = progress.spent.usual_s
        return "stall" if usual_s is not None and is_overdue(seconds, usual_s) else TRAINING
    if attempt.reason == EndReason.STALL.value:
        return "stall"
    return "save" if attempt.reason in _CLEAN else "crash"


def _between(attempt: AttemptRecord, later: AttemptRecord | None) -> str:
    """The cause of the time until the next attempt, which its host began or somebody else did."""
    if later is not None and later.generation > attempt.generation:
        return IDLE
    if attempt.reason in _QUEUED:
        return QUEUE
    return "stall" if attempt.reason == EndReason.STALL.value else "crash"
