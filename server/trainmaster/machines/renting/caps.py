"""What the settings allow to be spent, looked at before anything is rented."""

from __future__ import annotations

from collections.abc import Sequence

from trainmaster.runs.cost import committed_usd, spent_usd
from trainmaster.store.control.instances import RentedBox
from trainmaster.words.errors import SpendError
from trainmaster.words.settings import Settings


def refuse_beyond_caps(
    settings: Settings, boxes: Sequence[RentedBox], usd_per_h: float, hours: float, now: float
) -> None:
    """Refuse a box that would break a cap beside those that are on record.

    Raises:
        SpendError: `SPEND_CAP`, naming the setting.
    """
    if usd_per_h > settings.max_usd_h:
        raise _beyond("max_usd_h", f"{usd_per_h:.2f} $ an hour", f"{settings.max_usd_h:.2f} $")
    if hours > settings.max_hours:
        raise _beyond("max_hours", f"a lease of {hours:g} h", f"{settings.max_hours:g} h")
    spent = sum(spent_usd(box, now) for box in boxes)
    committed = sum(committed_usd(box, now) for box in boxes)
    total = spent + committed + usd_per_h * hours
    if total > settings.max_usd_total:
        told = (
            f"{usd_per_h * hours:.2f} $ beside {spent:.2f} $ that were spent and "
            f"{committed:.2f} $ that open leases may still come to"
        )
        raise _beyond("max_usd_total", told, f"{settings.max_usd_total:.2f} $")


def _beyond(setting: str, told: str, cap: str) -> SpendError:
    others = ", give boxes back (`trainmaster costs` lists them)" * (setting == "max_usd_total")
    return SpendError(
        "SPEND_CAP",
        f"It would take {told}; `{setting}` allows {cap}.",
        f"Take less{others}, or let whoever owns the settings raise `{setting}`: no tool can.",
        field=setting,
    )
