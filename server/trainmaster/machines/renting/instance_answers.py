"""Rented instances as answers of tools and commands."""

from __future__ import annotations

import time

from trainer_runtime.core.protocol.command import command
from trainer_runtime.core.protocol.figures import in_utc
from trainmaster.answers.rentals import ProvisionAnswer, ReleaseAnswer
from trainmaster.errors.errors import CloudError
from trainmaster.runs.status.cost import spent_usd
from trainmaster.store.control.instances import RecordedError, RentedInstance, RentState


def provision_answer(instance: RentedInstance) -> ProvisionAnswer:
    return ProvisionAnswer(
        instance=instance.tag,
        host=instance.host,
        state=instance.state.value,
        provider=instance.provider,
        usd_per_h=round(instance.usd_per_h, 4),
        budget_usd=round(instance.budget_usd, 2),
        lease_ends_at=in_utc(instance.lease_end_t),
        lease_timer=instance.lease_timer,
        reason=reason_of(instance),
        next_step=_next_step(instance),
    )


def release_answer(instance: RentedInstance) -> ReleaseAnswer:
    again = f"It continues in the background; check with {command('release', instance.host)}."
    return ReleaseAnswer(
        instance=instance.tag,
        host=instance.host,
        state=instance.state.value,
        mirrored=list(instance.mirrored_runs) or None,
        spent_usd=round(spent_usd(instance, time.time()), 4),
        next_step=again if instance.open else None,
    )


def reason_of(instance: RentedInstance) -> str | None:
    """Why an instance is in its state, unless the state explains itself."""
    if instance.open and instance.last_error is not None:
        return f"{instance.last_error.code}: {instance.last_error.message}"
    if instance.state is RentState.CREATED:
        return instance.boot_problem or "it is booting"
    return instance.end_reason


def recorded_error(record: RecordedError) -> CloudError:
    return CloudError(record.code, record.message, record.fix, record.retryable, record.field)


def _next_step(instance: RentedInstance) -> str:
    if instance.state is RentState.READY:
        return f"Launch there: {command('launch', 'SPEC', '--host', instance.host)}."
    if instance.state is RentState.ENDED:
        return f"Take another: {command('offers')}."
    return (
        f"It continues in the background. {command('hosts')} shows it once it is ready; repeat "
        "the request with the same idempotency key for its state, or for why it failed."
    )
