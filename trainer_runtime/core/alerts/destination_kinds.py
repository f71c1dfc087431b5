"""The kinds of destinations: what each receives, and how its address is recognised.

Settings, both senders and `alerts add --to` follow from `KINDS`; docs/extending.md adds one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from trainer_runtime.core.protocol.alert_record import Message

KindName = Literal["webhook", "slack", "discord", "command"]


@dataclass(frozen=True, slots=True)
class DestinationKind:
    """`body` makes the JSON object that it takes: in a POST to its URL or, if `is_program`, on the
    standard input of a program, which only the client runs. `web_host`: of an `https` address that
    is one of this kind."""

    body: Callable[[Message], dict[str, Any]]
    web_host: str | None = None
    is_program: bool = False


def _slack(message: Message) -> dict[str, Any]:
    text = _line(message).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return {"text": text}


def _discord(message: Message) -> dict[str, Any]:
    return {"content": _line(message), "allowed_mentions": {"parse": []}}


def _line(message: Message) -> str:
    return f"[{message.severity}] {message.alert}: {message.text} ({message.id})"


KINDS: Mapping[KindName, DestinationKind] = {
    "webhook": DestinationKind(Message.to_dict),
    "slack": DestinationKind(_slack, "hooks.slack.com"),
    "discord": DestinationKind(_discord, "discord.com"),
    "command": DestinationKind(Message.to_dict, is_program=True),
}
WEB_KINDS = tuple(name for name, kind in KINDS.items() if not kind.is_program)


def kind_of_web_host(host: str) -> KindName:
    """The kind of an address at `host`; `webhook` where none is named."""
    return next((name for name, kind in KINDS.items() if kind.web_host == host), "webhook")
