"""The delivery state of each alert message, which guarantees at-least-once delivery.

A message is recorded as `fired` before it is sent, and as `sent` only after the receiver accepted
it. A sender that is killed in between sends it again under the same id.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from trainer_runtime.core.decoding import Fields, JsonRecord
from trainer_runtime.core.protocol.journal_lines import AlertChanged

FIRED, SENT, FAILED = "fired", "sent", "failed"
FIRST_PAUSE_S, LONGEST_PAUSE_S = 2.0, 900.0
# Long enough for a receiver that is down overnight.
GIVE_UP_AFTER_S = 24 * 3600.0
_MOST_KEPT = 64


@dataclass(frozen=True, slots=True)
class Message(JsonRecord):
    """What a receiver gets; every delivery of it carries the same `id`. `t`: Unix seconds."""

    id: str
    run: str
    host: str
    alert: str
    severity: str
    state: str
    step: int
    text: str
    t: float

    @classmethod
    def find(cls, fields: Fields) -> Message | None:
        """The same; None for what is not a message of this version."""
        try:
            return cls.of(fields)
        except ValueError:
            return None


@dataclass(slots=True)
class AlertDelivery(JsonRecord):
    """One message and its delivery. `due_t`: when to try next; None once it is sent or given up.

    `tries` counts failed tries, `reason` says why the newest failed.
    """

    message: Message
    to: str
    fired_t: float
    phase: str = FIRED
    tries: int = 0
    due_t: float | None = None
    reason: str | None = None


@dataclass(slots=True)
class AlertRecord(JsonRecord):
    """The deliveries of a run's messages by id: all that are open and the newest 64 that are done.

    `forgotten_t`: when the newest message that is no longer kept was fired.
    """

    deliveries: dict[str, AlertDelivery] = field(default_factory=dict)
    forgotten_t: float = 0.0

    def knows(self, message: Message, began_t: float) -> bool:
        """Whether this message was fired before; `began_t`: the time of its onset."""
        return message.id in self.deliveries or began_t <= self.forgotten_t

    def due(self, now: float) -> tuple[str, AlertDelivery] | None:
        """The message to try next."""
        waiting = [
            (delivery.due_t, name)
            for name, delivery in self.deliveries.items()
            if delivery.due_t is not None and delivery.due_t <= now
        ]
        return (name := min(waiting)[1], self.deliveries[name]) if waiting else None

    @property
    def unsent(self) -> list[str]:
        return [name for name, delivery in self.deliveries.items() if delivery.due_t is not None]

    def apply(self, t: float, line: AlertChanged) -> None:
        """Apply a journal line; lines in an unknown format of a newer runtime are skipped."""
        if line.phase == FIRED and line.message is not None:
            message = Message.find(line.message)
            if message is not None:
                self.deliveries[line.id] = AlertDelivery(message, str(line.to), t, due_t=t)
                self._forget()
            return
        delivery = self.deliveries.get(line.id)
        if delivery is None or line.phase not in (SENT, FAILED):
            return
        delivery.phase, delivery.reason, delivery.due_t = line.phase, line.reason, line.due_t
        if line.phase == FAILED:
            delivery.tries += 1

    def _forget(self) -> None:
        done = [name for name, delivery in self.deliveries.items() if delivery.due_t is None]
        for name in done[:-_MOST_KEPT]:
            self.forgotten_t = max(self.forgotten_t, self.deliveries.pop(name).fired_t)


def fired(message: Message, to: str) -> dict[str, Any]:
    """The fields of a `fired` event."""
    return {"phase": FIRED, "id": message.id, "to": to, "message": message.to_dict()}


def sent(name: str) -> dict[str, Any]:
    return {"phase": SENT, "id": name}


def failed(
    name: str,
    delivery: AlertDelivery,
    reason: str,
    now: float,
    *,
    wait_s: float = 0.0,
    last: bool = False,
) -> dict[str, Any]:
    """The fields of a `failed` event, with the time of the next try.

    `wait_s`: the pause that the receiver asked for; `last`: no further try follows.
    """
    pause_s = max(wait_s, min(FIRST_PAUSE_S * 2.0**delivery.tries, LONGEST_PAUSE_S))
    over = last or now + pause_s > delivery.fired_t + GIVE_UP_AFTER_S
    return {"phase": FAILED, "id": name, "reason": reason, "due_t": None if over else now + pause_s}
