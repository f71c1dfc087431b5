"""Training on a machine that is given out in sessions: how many, until when, and what they lack."""

from __future__ import annotations

from collections.abc import Sequence

from trainer_runtime.core.protocol.duration import in_utc
from trainmaster.plan.decisions.environment import may_install
from trainmaster.plan.decisions.session_calendar import Calendar, calendar, next_refresh
from trainmaster.plan.decisions.tokenizer import BYTE, chosen_tokenizer
from trainmaster.plan.facts import FolderFacts, HostFacts, SessionFacts
from trainmaster.plan.result import Ledger
from trainmaster.plan.spec import EnvironmentSpec, TrainingSpec
from trainmaster.words.errors import PlanError


def plan_sessions(
    facts: HostFacts, hours: float | None, uses_quota: bool, ledger: Ledger
) -> Calendar | None:
    """The calendar of a training on a machine that is given out in sessions, and what to know of
    it; None on any other, and where nobody can tell how long it takes."""
    sessions, now = facts.sessions, facts.measured_at
    if sessions is None or now is None:
        return None
    is_spent = _warn_of_spent_quota(sessions, now, uses_quota, ledger)
    if hours is None:
        return None
    found = calendar(sessions, hours, now, uses_quota=uses_quota)
    if found is None:
        ledger.warn(
            f"{hours:.3g} hours of training never come to an end in sessions of "
            f"{sessions.usable_hours:.3g} usable hours out of {sessions.quota_total_h:.3g} a week."
        )
        return None
    ledger.decide(
        "sessions",
        found.sessions,
        f"{hours:.3g} hours of training in sessions of {sessions.hours:.3g} hours, of which "
        f"{sessions.usable_hours:.3g} train; each goes on from the last one's output.",
    )
    if found.refreshes > is_spent:  # once is what is said of a quota that is spent
        ledger.warn(
            f"The week's quota has {sessions.quota_left_h:.3g} of {sessions.quota_total_h:.3g} "
            f"hours left: it has to start anew {_times(found.refreshes)} before this ends."
        )
    return found


def refuse_without_internet(
    spec: TrainingSpec,
    facts: HostFacts,
    inputs: Sequence[FolderFacts | None],
    required: Sequence[str],
) -> None:
    """Raises:
    PlanError: `INTERNET_NEEDED`, sessions are given none, and the training has to fetch things.
    """
    if facts.sessions is None or facts.sessions.internet:
        return
    installs = len(required) > 1 and may_install(spec) and not _brings_wheels(spec)
    needs = [
        *(f"{one.hub} of the hub" for one in inputs if one is not None and one.hub),
        *(f"tracking by {name}" for name in sorted(spec.tracking) if name != "tensorboard"),
        *([f"packages to install ({', '.join(required[1:])})"] if installs else []),
    ]
    if needs:
        raise PlanError(
            "INTERNET_NEEDED",
            f"The training needs the internet for {'; '.join(needs)}. The settings say "
            "`kaggle.internet: false`.",
            "Set it to true (Kaggle wants a verified phone number for it); or give folders of this "
            "machine, and `environment: existing` for what Kaggle's image has.",
            field="host",
        )


def where_cut(spec: TrainingSpec, facts: HostFacts) -> str:
    """Where the shards are cut, as `data.prepare` has it; sessions, which would cut them anew each
    time, are sent those that this machine can cut by itself."""
    formats = {source.format for source in spec.data.sources}
    cuts = chosen_tokenizer(spec) == BYTE and formats == {"text"}
    if facts.sessions is not None and spec.data.prepare == "auto" and cuts:
        return "here"
    return spec.data.prepare


def _warn_of_spent_quota(
    sessions: SessionFacts, now: float, uses_quota: bool, ledger: Ledger
) -> bool:
    """Whether there was anything to warn of."""
    overhead_h = sessions.hours - sessions.usable_hours
    if not uses_quota or sessions.quota_left_h > overhead_h:
        return False
    when = in_utc(next_refresh(sessions, now))
    ledger.warn(
        f"The week's quota is spent ({sessions.quota_left_h:.2g} hours left): nothing runs before "
        f"{when}."
    )
    return True


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"


def _brings_wheels(spec: TrainingSpec) -> bool:
    given = spec.environment
    return isinstance(given, EnvironmentSpec) and given.wheels is not None
