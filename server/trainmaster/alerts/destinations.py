"""Destinations of the settings: their addresses, and who sends to them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from urllib.parse import urlsplit

from trainer_runtime.core.alerts.condition import Condition, needs_operator
from trainer_runtime.core.alerts.destination_kinds import WEB_KINDS
from trainer_runtime.core.protocol.command import command, option
from trainmaster.errors.errors import StateError, UsageError
from trainmaster.home.paths import Home
from trainmaster.settings.settings import Destination, read_settings
from trainmaster.store.control.alerts import Sender
from trainmaster.store.secret_values import find_value


def destinations(home: Home) -> dict[str, Destination]:
    """All of them, by name.

    Raises:
        StateError: `SETTINGS_NOT_READABLE`.
    """
    return dict(read_settings(home).destinations)


def known_destination(home: Home, name: str, field: str) -> Destination:
    """The destination of this name.

    Raises:
        UsageError: `DESTINATION_UNKNOWN`, at `field`.
        StateError: `SETTINGS_NOT_READABLE`.
    """
    by_name = destinations(home)
    if name in by_name:
        return by_name[name]
    raise UsageError(
        "DESTINATION_UNKNOWN",
        f"The settings name no destination {name!r}.",
        f"Take one of {', '.join(by_name)}." if by_name else how_to_name_one(home),
        field=field,
    )


def how_to_name_one(home: Home) -> str:
    """How settings without a destination get one."""
    others = ", ".join(name for name in WEB_KINDS if name != "slack")
    return (
        f"Let {home.settings} name one, for example in one line: "
        f"destinations: {{ops: {{kind: slack, url_secret: OPS_WEBHOOK}}}} (also {others}, or "
        "{kind: command, command: [PROGRAM]}). A person at a terminal can have it written: "
        f"{command('alerts add', '--when', 'state failed', '--to', 'desktop')}, or "
        f"{option('--to', 'command:PROGRAM')}, {option('--to', 'https://ADDRESS')}."
    )


def refuse_unknown_destinations(home: Home, names: Iterable[str]) -> None:
    """Those that a spec's alerts name, in their order.

    Raises:
        UsageError: `DESTINATION_UNKNOWN`, the settings name no such one.
        StateError: `SETTINGS_NOT_READABLE`.
    """
    for index, name in enumerate(names):
        known_destination(home, name, f"alerts[{index}].to")


def address(home: Home, name: str, destination: Destination, environment: Mapping[str, str]) -> str:
    """The URL of a destination; a secret, never part of an answer or of the database.

    Raises:
        StateError: `SECRET_MISSING`, `SECRET_INVALID`.
    """
    field = f"destinations.{name}"
    if destination.url_secret is None:
        return destination.url or ""
    url = find_value(home, destination.url_secret, environment, f"{field}.url_secret").strip()
    if not is_address(url):
        raise StateError(
            "SECRET_INVALID",
            f"The value of {destination.url_secret} is not an http or https address.",
            "Put the destination's whole URL there.",
            field=field,
        )
    return url


def sender_of(destination: Destination, condition: Condition) -> Sender:
    """The sender of a condition's alert: the destination's, or the client if the host can't."""
    if destination.command or needs_operator(condition):
        return "operator"
    return destination.sender or "box"


def is_address(url: str) -> bool:
    """Whether `url` is one of http or https, with a host."""
    try:
        parts = urlsplit(url)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and url.isprintable()
    except ValueError:
        return False
