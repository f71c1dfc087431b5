"""Plans for rented hosts: price, budget and lease."""

from __future__ import annotations

from trainer_runtime.core.inputs.object_store import StoreAddress
from trainer_runtime.core.protocol.command import command
from trainer_runtime.core.protocol.duration import format_duration
from trainer_runtime.core.protocol.figures import spoken_duration, usd_text
from trainmaster.errors.errors import HostError, SpendError
from trainmaster.plan.decisions.estimate import HOUR_S
from trainmaster.plan.facts import HostFacts
from trainmaster.plan.result import Ledger
from trainmaster.plan.spec import NO_MIRROR, TrainingSpec

# A lease with less left than this can't hold a training: stopping it in time takes half of that.
LEAST_LEASE_S = 600.0
Hours = tuple[float, float]


def choose_mirror(spec: TrainingSpec, facts: HostFacts, ledger: Ledger) -> str | None:
    """Where verified checkpoints are copied to; None for nowhere."""
    mirror = spec.checkpoint.mirror
    if facts.lease_end_t is None:
        return None if mirror == NO_MIRROR else mirror
    if mirror is None:
        reason = "A rented instance and its disk are deleted at the end of the lease."
        ledger.decide("checkpoint.mirror", "operator", reason)
        return "operator"
    if mirror == "operator" or StoreAddress.find(mirror) is not None:
        return mirror
    what = "is none" if mirror == NO_MIRROR else f"is {mirror}, on the instance itself"
    ledger.warn(
        f"checkpoint.mirror {what}: checkpoints are lost with the rented instance, except those "
        "that its release copies here."
    )
    return None if mirror == NO_MIRROR else mirror


def within_budget_s(
    spec: TrainingSpec, facts: HostFacts, hours: Hours | None, limit_s: float, ledger: Ledger
) -> float:
    """`limit_s`, the longest that the run may take, or less where `limits.budget_usd` buys less.

    `hours`: the least and the most that the training is expected to take.

    Raises:
        SpendError: `SPEND_CAP`, even the least costs more than the budget.
    """
    budget_usd, price = spec.limits.budget_usd, facts.usd_per_hour
    if budget_usd is None:
        return limit_s
    if not price:
        ledger.warn(
            f"limits.budget_usd is {budget_usd:g}, but {facts.hostname} has no price on record: "
            "it is not enforced."
        )
        return limit_s
    if hours is not None:
        _compare(budget_usd, (hours[0] * price, hours[1] * price), price, ledger)
    bought_s = budget_usd / price * HOUR_S
    if bought_s >= limit_s:
        return limit_s
    reason = f"{usd_text(budget_usd)} of limits.budget_usd last so long at {usd_text(price)}/h."
    ledger.decide("limits.max_runtime", format_duration(bought_s), reason)
    return bought_s


def check_lease(facts: HostFacts, hours: Hours | None, ledger: Ledger) -> None:
    """Compare the remaining lease of the host with the duration of the training.

    Raises:
        HostError: `LEASE_OVER`, next to nothing is left.
    """
    if facts.lease_end_t is None or facts.measured_at is None:
        return
    left_s = facts.lease_end_t - facts.measured_at
    if left_s < LEAST_LEASE_S:
        raise lease_over(facts.hostname, left_s)
    if hours is not None and hours[1] * HOUR_S > left_s:
        ledger.warn(
            f"The host's lease ends in {spoken_duration(left_s)}; the training may take "
            f"{spoken_duration(hours[1] * HOUR_S)}. It is saved and stopped in time."
        )


def lease_over(host: str, left_s: float) -> HostError:
    """The refusal to start on a host whose lease is over, or nearly so."""
    left = f"ends in {spoken_duration(left_s)}" if left_s > 0 else "is over"
    return HostError(
        "LEASE_OVER",
        f"The lease of {host} {left}: no training is started there any more.",
        f"Rent another instance ({command('offers')}, "
        f"{command('provision', 'OFFER', '--hours', 'H')}), or choose a host.",
        field="host",
    )


def _compare(budget_usd: float, costs: Hours, price: float, ledger: Ledger) -> None:
    low, high = costs
    range_usd = f"{usd_text(low)} to {usd_text(high)} at {usd_text(price)}/h"
    if low > budget_usd:
        raise SpendError(
            "SPEND_CAP",
            f"The training is expected to cost {range_usd}, more than the {usd_text(budget_usd)} "
            "of "
            "limits.budget_usd.",
            "Train less (steps, tokens, model), take a cheaper machine, or allow more.",
            field="limits.budget_usd",
        )
    if high > budget_usd:
        ledger.warn(
            f"The training may cost {range_usd}; limits.budget_usd stops it at "
            f"{usd_text(budget_usd)}, "
            "with a checkpoint."
        )
