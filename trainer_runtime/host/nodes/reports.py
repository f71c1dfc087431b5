"""What a member's newest report says of its part in an attempt."""

from __future__ import annotations

from dataclasses import replace

from trainer_runtime.core.policy.endings import Exit
from trainer_runtime.core.processes.rank_exits import RankEnd
from trainer_runtime.host.nodes.hub import Heard

_SIGKILL = 9


def is_in(heard: Heard | None, attempt: int, phase: str) -> bool:
    return heard is not None and (heard.report.attempt, heard.report.phase) == (attempt, phase)


def problem_of(heard: Heard | None) -> str | None:
    """What keeps a member from doing what is wanted: of an attempt that it can't even take up, its
    report is about the one before."""
    return None if heard is None else heard.report.problem


def cannot_start(heard: Heard | None) -> bool:
    """Whether a member is kept from starting its part."""
    if heard is None or heard.report.problem is None:
        return False
    return heard.report.phase not in ("running", "ended")


def has_failed(heard: Heard | None, attempt: int) -> bool:
    if heard is None or not is_in(heard, attempt, "ended"):
        return False
    return not is_in_order(Exit(heard.report.code, heard.report.signal))


def is_in_order(end: Exit) -> bool:
    return end.signal is None and end.code in (0, 75)


def ends_of(heard: Heard, first_rank: int) -> list[RankEnd]:
    """The ends of a node's ranks, by this node's clock; one whose end nobody saw was killed."""
    report = heard.report
    if report.ends:
        return [replace(end, t=end.t - heard.skew_s) for end in report.ends]
    if report.code is None and report.signal is None:
        return [RankEnd(first_rank, report.t - heard.skew_s, signal=_SIGKILL)]
    end = RankEnd(first_rank, report.t - heard.skew_s, report.code, report.signal)
    return [end]
