"""Spending caps from the settings, checked before anything is rented."""

from __future__ import annotations

from collections.abc import Sequence

from trainer_runtime.core.protocol.command import command
from trainer_runtime.core.protocol.figures import usd_text
from trainmaster.runs.cost import committed_usd, spent_usd
from trainmaster.store.control.instances import RentedInstance
from trainmaster.words.errors import SpendError
from trainmaster.words.settings import Settings


def refuse_beyond_caps(
    settings: Settings,
    instances: Sequence[RentedInstance],
    usd_per_h: float,
    hours: float,
    now: float,
) -> None:
    """Refuse an instance that would exceed a cap together with those on record.

    Raises:
        SpendError: `SPEND_CAP`, naming the setting.
    """
    if usd_per_h > settings.max_usd_h:
        raise _beyond("max_usd_h", f"{usd_text(usd_per_h)}/h", usd_text(settings.max_usd_h))
    if hours > settings.max_hours:
        raise _beyond("max_hours", f"a lease of {hours:g} h", f"{settings.max_hours:g} h")
    spent = sum(spent_usd(instance, now) for instance in instances)
    committed = sum(committed_usd(instance, now) for instance in instances)
    total = spent + committed + usd_per_h * hours
    if total > settings.max_usd_total:
        need = (
            f"{usd_text(usd_per_h * hours)}, on top of {usd_text(spent)} spent and "
            "committed to open leases"
        )
        raise _beyond("max_usd_total", need, usd_text(settings.max_usd_total))


def _beyond(setting: str, need: str, cap: str) -> SpendError:
    release = f", release instances ({command('costs')} lists them)" * (setting == "max_usd_total")
    return SpendError(
        "SPEND_CAP",
        f"It would take {need}; `{setting}` allows {cap}.",
        f"Request less{release}, or have the owner of the settings raise `{setting}`: no tool can.",
        field=setting,
    )
