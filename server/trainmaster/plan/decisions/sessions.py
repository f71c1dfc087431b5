"""Training in sessions: their number, the finish time, and missing internet."""

from __future__ import annotations

from collections.abc import Sequence

from trainer_runtime.core.protocol.figures import in_utc, spoken_hours
from trainmaster.errors.errors import PlanError
from trainmaster.plan.decisions.environment import may_install
from trainmaster.plan.decisions.session_calendar import Calendar, calendar, next_refresh
from trainmaster.plan.decisions.tokenizer import BYTE, chosen_tokenizer
from trainmaster.plan.facts import FolderFacts, HostFacts, SessionFacts
from trainmaster.plan.result import Ledger
from trainmaster.plan.spec import EnvironmentSpec, TrainingSpec


def plan_sessions(
    facts: HostFacts, hours: float | None, uses_quota: bool, ledger: Ledger
) -> Calendar | None:
    """The calendar of a training in sessions, with its warnings; None for other hosts, and if the
    duration is unknown."""
    sessions, now = facts.sessions, facts.measured_at
    if sessions is None or now is None:
        return None
    is_spent = _warn_of_spent_quota(sessions, now, uses_quota, ledger)
    if hours is None:
        return None
    planned = calendar(sessions, hours, now, uses_quota=uses_quota)
    if planned is None:
        ledger.warn(
            f"{spoken_hours(hours)} of training never finish in sessions of "
            f"{spoken_hours(sessions.usable_hours)} usable out of "
            f"{spoken_hours(sessions.quota_total_h)} a week."
        )
        return None
    ledger.decide(
        "sessions",
        planned.sessions,
        f"{spoken_hours(hours)} of training in sessions of {spoken_hours(sessions.hours)}, of "
        "which "
        f"{spoken_hours(sessions.usable_hours)} train; each resumes from the output of the last "
        "one.",
    )
    if planned.refreshes > is_spent:  # a used-up quota has its own warning
        ledger.warn(
            f"The week's quota has {spoken_hours(sessions.quota_left_h)} of "
            f"{spoken_hours(sessions.quota_total_h)} left: the training needs "
            f"{_quotas(planned.refreshes)}."
        )
    return planned


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
        *(f"{folder.hub} of the hub" for folder in inputs if folder is not None and folder.hub),
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


def where_prepared(spec: TrainingSpec, facts: HostFacts) -> str:
    """Where shards are prepared, as `data.prepare` has it. Sessions would repeat the work, so they
    get the shards that this machine can prepare."""
    cuts = chosen_tokenizer(spec) == BYTE and spec.data.formats == {"text"}
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
        f"The week's quota is spent ({spoken_hours(sessions.quota_left_h)} left): nothing runs "
        "before "
        f"{when}."
    )
    return True


def _quotas(count: int) -> str:
    return "one further weekly quota" if count == 1 else f"{count} further weekly quotas"


def _brings_wheels(spec: TrainingSpec) -> bool:
    environment = spec.environment
    return isinstance(environment, EnvironmentSpec) and environment.wheels is not None
