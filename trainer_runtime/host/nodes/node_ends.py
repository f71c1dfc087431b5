"""How the ranks of an attempt ended on this node."""

from __future__ import annotations

from trainer_runtime.core.policy.endings import Exit
from trainer_runtime.core.processes.rank_exits import ENDS, RankEnd
from trainer_runtime.host.files.files import read_fields
from trainer_runtime.host.files.layout import AttemptFolder


def ends_on_node(attempt: AttemptFolder, end: Exit, first_rank: int) -> tuple[RankEnd, ...]:
    """The ends that `ranks` has recorded; else, as of a program that starts its own ranks, `end` as
    that of the node's first one. Empty where neither is known."""
    try:
        recorded = read_fields(attempt.ranks / ENDS)
        if recorded is not None:
            return tuple(map(RankEnd.of, recorded.sections("ends")))
        held = read_fields(attempt.exit)
        is_clear = end.code is not None or end.signal is not None
        if held is None or not is_clear:
            return ()
        return (RankEnd(first_rank, held.time("t"), end.code, end.signal),)
    except ValueError:
        return ()
