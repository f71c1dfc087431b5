"""Spending caps from the settings, checked before anything is rented."""

from __future__ import annotations

from collections.abc import Sequence

from trainer_runtime.core.protocol.command import command
from trainer_runtime.core.protocol.figures import usd_text
from trainmaster.errors.errors import SpendError
from trainmaster.runs.status.cost import Rented, committed_usd, spent_usd
from trainmaster.settings.settings import Settings
from trainmaster.store.control.instances import RentedInstance


def refuse_beyond_caps(
    settings: Settings,
    rented: Sequence[Rented],
    instance: RentedInstance,
    hours: float,
    volume_usd: float,
) -> None:
    """Refuse an instance that would exceed a cap together with what is on record. `volume_usd`:
    what its network volume costs beyond what was agreed to before.

    Raises:
        SpendError: `SPEND_CAP`, naming the setting.
    """
    usd_per_h = instance.usd_per_h
    now = instance.intended_t
    if usd_per_h > settings.max_usd_h:
        raise _beyond("max_usd_h", f"{usd_text(usd_per_h)}/h", usd_text(settings.max_usd_h))
    if hours > settings.max_hours:
        raise _beyond("max_hours", f"a lease of {hours:g} h", f"{settings.max_hours:g} h")
    spent = sum(spent_usd(each, now) for each in rented)
    committed = sum(committed_usd(each, now) for each in rented)
    more_usd = instance.budget_usd + volume_usd
    total = spent + committed + more_usd
    if total > settings.max_usd_total:
        need = (
            f"{usd_text(more_usd)}, on top of {usd_text(spent)} spent and committed to open leases"
        )
        raise _beyond("max_usd_total", need, usd_text(settings.max_usd_total))


def _beyond(setting: str, need: str, cap: str) -> SpendError:
    is_total = setting == "max_usd_total"
    release = f", release what is rented ({command('costs')} lists it)" * is_total
    return SpendError(
        "SPEND_CAP",
        f"It would take {need}; `{setting}` allows {cap}.",
        f"Request less{release}, or have the owner of the settings raise `{setting}`: no tool can.",
        field=setting,
    )
