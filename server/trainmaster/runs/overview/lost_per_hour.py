"""What is lost in an hour in which nobody acts: by it, whatever needs attention is ordered.

The one rule for the overview's answer, so for the command line, MCP and the board.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from trainer_runtime.core.diagnosis.stacks.verdict import (
    HANG_CHECKPOINT,
    HANG_COLLECTIVE,
    HANG_DATA,
    STALL,
)
from trainer_runtime.core.protocol.journal import NEEDS_OPERATOR
from trainer_runtime.core.protocol.states import RunState
from trainmaster.runs.diagnosis.diagnose_run import FoundOfRun
from trainmaster.sync.run_view import RunView

HUNG = frozenset({STALL, HANG_CHECKPOINT, HANG_COLLECTIVE, HANG_DATA})
# What an hour of one is taken to be worth where nobody is paid for it.
_ACCELERATOR_USD, _PROCESSOR_USD = 1.0, 0.1
# Of the work of a run, the part that is lost: a hung one holds its accelerators for nothing; where
# none runs, or what runs may be thrown away, they can serve others; of a silent one it isn't known.
_HELD, _STANDING, _UNKNOWN = 1.0, 0.5, 0.25


@dataclass(frozen=True, slots=True)
class LostPerHour:
    """`usd`: of idle accelerators and of work that stands still. `may_follow`: nothing yet, but
    something may be lost if nobody acts. `since_t`: from when on (Unix seconds)."""

    usd: float = 0.0
    may_follow: bool = False
    since_t: float = 0.0

    @property
    def order(self) -> tuple[float, bool, float]:
        """The most first; of equal ones what may lead to more, then the older."""
        return -self.usd, not self.may_follow, self.since_t


def lost_by_run(
    view: RunView, worst: FoundOfRun | None, usd_per_h: Mapping[str, float]
) -> LostPerHour:
    """`worst`: the run's gravest open finding; `usd_per_h`: what rented hosts cost, by name."""
    since_t = view.record.state_t or view.run.created_t
    if worst is not None and not view.ended:
        since_t = view.record.findings[worst.id].opened_t if worst.by_host else since_t
    worth = usd_per_h.get(view.run.host) or _worth_usd(view)
    share = _share(view, worst)
    return LostPerHour(share * worth, worst is not None and not view.ended, since_t)


def _share(view: RunView, worst: FoundOfRun | None) -> float:
    if view.state is RunState.FAILED:
        return _STANDING
    if view.ended:
        return 0.0
    if view.state is RunState.LOST:
        return _UNKNOWN
    if worst is not None and worst.code in HUNG:
        return _HELD
    if view.record.reason == NEEDS_OPERATOR or (worst is not None and worst.severity == "critical"):
        return _STANDING
    return 0.0


def _worth_usd(view: RunView) -> float:
    compute = view.run.config.compute
    if compute.device == "cpu" and not compute.gpus:
        return _PROCESSOR_USD * compute.nodes
    return _ACCELERATOR_USD * max(compute.processes, compute.gpus or 1)
