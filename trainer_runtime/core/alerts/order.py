"""The alerts that a host evaluates and their destinations: `.alerts.json` in the run's folder."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field

from trainer_runtime.core.alerts.alert import Alert
from trainer_runtime.core.alerts.destination_kinds import KindName
from trainer_runtime.core.decoding import Fields, JsonRecord


@dataclass(frozen=True, slots=True)
class Destination(JsonRecord):
    kind: KindName
    url: str


def _alerts(fields: Fields) -> tuple[Alert, ...]:
    alerts = []
    for item in fields.sections("alerts"):
        with suppress(ValueError):
            alerts.append(Alert.of(item))
    return tuple(alerts)


def _destinations(fields: Fields) -> dict[str, Destination]:
    section = fields.section("destinations")
    destinations = {}
    for name in section.values:
        with suppress(ValueError):
            destinations[name] = Destination.of(section.section(name))
    return destinations


@dataclass(frozen=True, slots=True)
class AlertOrder(JsonRecord):
    """Written by the client. `host` is what it calls the host. Alerts and destinations that a newer
    version may know are left out.

    `last_tries_s`: how long the host keeps trying after the run's end, None: its own default.
    """

    alerts: tuple[Alert, ...] = field(default=(), metadata={"read": _alerts})
    destinations: Mapping[str, Destination] = field(
        default_factory=dict, metadata={"read": _destinations}
    )
    host: str = ""
    placement: int = 1
    generation: int = 0
    last_tries_s: float | None = None
