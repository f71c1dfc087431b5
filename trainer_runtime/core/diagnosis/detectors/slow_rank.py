"""One rank is slower than the others, and all wait for it: `slow_rank`.

Evaluated over the newest 16 aggregates of all ranks' paces. The same rank has to be the slowest in
13 of them, by a fifth or more of the median in the middle of them: which rank is last changes from
step to step where the cause is chance, and synchronous steps take as long as the slowest rank's.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from trainer_runtime.core.config.rank_hosts import host_of_rank
from trainer_runtime.core.decoding import Fields
from trainer_runtime.core.diagnosis.detectors.detector import REWIND, Code, Detector
from trainer_runtime.core.diagnosis.detectors.detector_context import DetectorContext
from trainer_runtime.core.diagnosis.detectors.window import median_of
from trainer_runtime.core.protocol.trainer_lines import RanksAggregated

_AGGREGATES = 16
_ALIKE = 13
_SLOW = 1.2
_BACK = 1.1

Aggregate = tuple[int, int, float]  # step, the slowest rank, how many times slower than the median


_CODES = {
    "slow_rank": Code(
        "One rank is slower than the others, which wait for it in every synchronous step.",
        (
            "rank {rank}: {key} {behind} times slower than the median of {ranks} ranks",
            "rank {rank} is on the host {host}",
            "the slowest in {slowest_in} of the last {of} steps that the ranks reported",
        ),
        (
            "Check that rank's GPU (clock, temperature, ECC errors), and its machine's processor, "
            "disk and network.",
        ),
        closed_by=(REWIND,),
    ),
}


@dataclass(slots=True)
class SlowRank(Detector):
    codes = _CODES
    events = ("rank_metric",)

    newest: deque[Aggregate] = field(default_factory=lambda: deque(maxlen=_AGGREGATES))

    def event(self, context: DetectorContext, kind: str, step: int, fields: Fields) -> None:
        if "ranks" in fields.values:
            self._aggregate(context, RanksAggregated.of(fields))

    def _aggregate(self, context: DetectorContext, line: RanksAggregated) -> None:
        if line.slowest is None or line.behind is None:
            return
        self.newest.append((line.step, line.slowest, line.behind))
        if len(self.newest) < _AGGREGATES:
            return
        slowest = [rank for _, rank, _ in self.newest]
        rank = max(set(slowest), key=slowest.count)
        its = [(step, behind) for step, slow, behind in self.newest if slow == rank]
        behind = median_of(sorted(factor for _, factor in its))
        entry = context.ledger.get("slow_rank")
        if entry is not None and (entry.values["rank"] != rank or behind < _BACK):
            context.ledger.close("slow_rank", line.step)
        if len(its) < _ALIKE or behind < _SLOW:
            return
        first = its[0][0]
        entry = context.ledger.open("slow_rank", first, "warning", step=first, confidence=0.85)
        entry.values |= {"rank": rank, "behind": behind, "ranks": line.count, "key": line.key}
        entry.values |= {"slowest_in": len(its), "of": _AGGREGATES}
        if (host := host_of_rank(context.settings.config, rank)) is not None:
            entry.values["host"] = host
