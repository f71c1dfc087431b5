"""The alerts that a host evaluates and their destinations: `.alerts.json` in the run's folder."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field

from trainer_runtime.core.alerts.alert import Alert
from trainer_runtime.core.alerts.destination_kinds import KINDS, KindName
from trainer_runtime.core.decoding import Fields


@dataclass(frozen=True, slots=True)
class Destination:
    kind: KindName
    url: str

    @classmethod
    def of(cls, fields: Fields) -> Destination:
        return cls(_kind_of(fields), fields.text("url"))


@dataclass(frozen=True, slots=True)
class AlertOrder:
    """Written by the client. `host` is what it calls the host.

    `last_tries_s`: how long the host keeps trying after the run's end, None: its own default.
    """

    alerts: tuple[Alert, ...] = ()
    destinations: Mapping[str, Destination] = field(default_factory=dict)
    host: str = ""
    placement: int = 1
    generation: int = 0
    last_tries_s: float | None = None

    @classmethod
    def of(cls, fields: Fields) -> AlertOrder:
        """Alerts and destinations that a newer version may know are left out."""
        return cls(
            alerts=tuple(_alerts(fields)),
            destinations=dict(_destinations(fields.section("destinations"))),
            host=fields.text("host", ""),
            placement=fields.integer("placement", 1),
            generation=fields.integer("generation", 0),
            last_tries_s=fields.find_number("last_tries_s"),
        )


def _alerts(fields: Fields) -> Iterator[Alert]:
    for item in fields.sections("alerts"):
        with suppress(ValueError):
            yield Alert.of(item)


def _destinations(fields: Fields) -> Iterator[tuple[str, Destination]]:
    for name in fields.values:
        with suppress(ValueError):
            yield name, Destination.of(fields.section(name))


def _kind_of(fields: Fields) -> KindName:
    given = fields.text("kind")
    for kind in KINDS:
        if kind == given:
            return kind
    raise fields.error("kind", f"is none of {', '.join(KINDS)}")
