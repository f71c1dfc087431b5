"""Computes when a training in sessions with a weekly quota of accelerator hours ends. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from trainmaster.plan.facts import SessionFacts

_HOUR_S = 3600.0
_WEEK_S = 7 * 24 * _HOUR_S
# Longer trainings have no useful calendar.
_MOST_SESSIONS = 1000


@dataclass(frozen=True, slots=True)
class Calendar:
    """Consecutive `sessions`; `finish_t` in Unix seconds; `refreshes`: how many further weekly
    quotas they need."""

    sessions: int
    finish_t: float
    refreshes: int


def calendar(facts: SessionFacts, hours: float, now: float, *, uses_quota: bool) -> Calendar | None:
    """The sessions of `hours` of training that begin at `now`; None where they never end.

    A session that the quota cuts short is started if a tenth of its usable hours is left. The next
    session begins when the last one ends.
    """
    overhead_h = facts.hours - facts.usable_hours
    least_h = overhead_h + 0.1 * facts.usable_hours
    if facts.usable_hours <= 0 or (uses_quota and facts.quota_total_h < least_h):
        return None
    left_h, refresh_t = facts.quota_left_h, next_refresh(facts, now)
    t, to_do_h, refreshes = now, hours, 0
    for number in range(1, _MOST_SESSIONS + 1):
        if uses_quota and left_h < least_h:
            t, refreshes = max(t, refresh_t), refreshes + 1
            left_h, refresh_t = facts.quota_total_h, refresh_t + _WEEK_S
        length_h = min(facts.hours, left_h) if uses_quota else facts.hours
        trained_h = min(to_do_h, length_h - overhead_h)
        last = trained_h >= to_do_h
        spent_h = trained_h if last else length_h
        t, to_do_h, left_h = t + spent_h * _HOUR_S, to_do_h - trained_h, left_h - spent_h
        if last:
            return Calendar(number, t, refreshes)
        if uses_quota and t >= refresh_t:
            left_h, refresh_t = facts.quota_total_h, refresh_t + _WEEK_S
    return None


def next_refresh(facts: SessionFacts, now: float) -> float:
    """The start of the next quota; a week from now if unknown."""
    return now + _WEEK_S if facts.refresh_t is None else max(now, facts.refresh_t)
