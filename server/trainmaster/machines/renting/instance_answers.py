"""Rented boxes as answers tell of them."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from trainer_runtime.core.protocol.duration import in_utc
from trainmaster.runs.cost import spent_usd
from trainmaster.store.control.instances import RentedBox, RentState
from trainmaster.words.answers.rentals import ProvisionAnswer, ReleaseAnswer
from trainmaster.words.errors import CloudError


def provisioned(box: RentedBox) -> ProvisionAnswer:
    return ProvisionAnswer(
        box=box.tag,
        host=box.host,
        state=box.state.value,
        provider=box.provider,
        usd_per_h=round(box.usd_per_h, 4),
        budget_usd=round(box.budget_usd, 2),
        lease_ends_at=in_utc(box.lease_end_t),
        own_timer=box.body["own_timer"],
        reason=reason_of(box),
        next_step=_next_step(box),
    )


def released(box: RentedBox) -> ReleaseAnswer:
    again = f"It goes on by itself; look again: `trainmaster release {box.host}`."
    return ReleaseAnswer(
        box=box.tag,
        host=box.host,
        state=box.state.value,
        mirrored=list(box.body.get("mirrored") or ()) or None,
        spent_usd=round(spent_usd(box, time.time()), 4),
        next_step=again if box.open else None,
    )


def reason_of(box: RentedBox) -> str | None:
    """Why a box is in its state, where that needs telling."""
    trouble, waits_for = box.body.get("trouble"), box.body.get("waits_for")
    if box.open and trouble is not None:
        return f"{trouble['code']}: {trouble['message']}"
    if box.state is RentState.CREATED:
        return str(waits_for) if waits_for else "it boots"
    reason = box.body.get("reason")
    return None if reason is None else str(reason)


def told_error(told: Mapping[str, Any]) -> CloudError:
    """The error that a record keeps."""
    return CloudError(
        told["code"], told["message"], told["fix"], bool(told["retryable"]), told.get("field")
    )


def _next_step(box: RentedBox) -> str:
    if box.state is RentState.READY:
        return f"Launch there: `trainmaster launch SPEC --host {box.host}`."
    if box.state is RentState.ENDED:
        return "Take another: `trainmaster offers`."
    return (
        "It goes on by itself; `trainmaster hosts` shows it once it is ready, and the same request "
        "with the same idempotency key tells how it stands, or why there is none."
    )
