"""What became of each message: the record that makes "at least once" hold.

A message stands here as `fired` before anybody sends it, and as `sent` only after the receiver has
taken it. Whoever is killed in between sends it once more, under the same id.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from trainer_runtime.core.decoding import Fields
from trainer_runtime.core.protocol.journal_lines import AlertChanged

FIRED, SENT, FAILED = "fired", "sent", "failed"
FIRST_PAUSE_S, LONGEST_PAUSE_S = 2.0, 900.0
# A receiver that is down over a night still gets it.
GIVE_UP_AFTER_S = 24 * 3600.0
_MOST_KEPT = 64


@dataclass(frozen=True, slots=True)
class Message:
    """What a receiver gets; `id` is the same however often it gets it. `t`: Unix seconds."""

    id: str
    run: str
    host: str
    alert: str
    severity: str
    state: str
    step: int
    text: str
    t: float

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def of(cls, fields: Fields) -> Message:
        """The message that `to_dict` described.

        Raises:
            DecodingError: it lacks a field, or has one of another type.
        """
        return cls(
            id=fields.text("id"),
            run=fields.text("run"),
            host=fields.text("host"),
            alert=fields.text("alert"),
            severity=fields.text("severity"),
            state=fields.text("state"),
            step=fields.integer("step"),
            text=fields.text("text"),
            t=fields.number("t"),
        )

    @classmethod
    def find(cls, fields: Fields) -> Message | None:
        """The same; None for what is not a message of this version."""
        try:
            return cls.of(fields)
        except ValueError:
            return None


@dataclass(slots=True)
class Told:
    """One message. `due_t`: when it is to be tried (again); None once it is sent or given up.

    `tries` counts those that failed, `reason` says why the newest did.
    """

    message: Message
    to: str
    fired_t: float
    phase: str = FIRED
    tries: int = 0
    due_t: float | None = None
    reason: str | None = None

    @classmethod
    def of(cls, fields: Fields) -> Told:
        """The message that `asdict` described."""
        return cls(
            message=Message.of(fields.section("message")),
            to=fields.text("to"),
            fired_t=fields.number("fired_t"),
            phase=fields.text("phase"),
            tries=fields.integer("tries", 0),
            due_t=fields.find_number("due_t"),
            reason=fields.find_text("reason"),
        )


@dataclass(slots=True)
class AlertRecord:
    """The messages of a run by id, the newest 64 of those that nothing is left to do about.

    `forgotten_t`: when the newest of those fired that are not kept any more.
    """

    told: dict[str, Told] = field(default_factory=dict)
    forgotten_t: float = 0.0

    def knows(self, message: Message, began_t: float) -> bool:
        """Whether this message was fired before; `began_t`: when what it tells of began."""
        return message.id in self.told or began_t <= self.forgotten_t

    def due(self, now: float) -> tuple[str, Told] | None:
        """The message to try next."""
        waiting = [
            (told.due_t, name)
            for name, told in self.told.items()
            if told.due_t is not None and told.due_t <= now
        ]
        return (name := min(waiting)[1], self.told[name]) if waiting else None

    @property
    def unsent(self) -> list[str]:
        return [name for name, told in self.told.items() if told.due_t is not None]

    def apply(self, t: float, line: AlertChanged) -> None:
        """Take in a line of the journal; one that a newer runtime has written otherwise is left
        out."""
        if line.phase == FIRED and line.message is not None:
            message = Message.find(line.message)
            if message is not None:
                self.told[line.id] = Told(message, str(line.to), t, due_t=t)
                self._forget()
            return
        told = self.told.get(line.id)
        if told is None or line.phase not in (SENT, FAILED):
            return
        told.phase, told.reason, told.due_t = line.phase, line.reason, line.due_t
        if line.phase == FAILED:
            told.tries += 1

    def _forget(self) -> None:
        done = [name for name, told in self.told.items() if told.due_t is None]
        for name in done[:-_MOST_KEPT]:
            self.forgotten_t = max(self.forgotten_t, self.told.pop(name).fired_t)

    @classmethod
    def from_dict(cls, data: Mapping[str, object]) -> AlertRecord:
        """The record that `asdict` described."""
        fields = Fields(data, "alerts")
        told = fields.section("told")
        return cls(
            {name: Told.of(told.section(name)) for name in told.values},
            fields.number("forgotten_t", 0.0),
        )


def fired(message: Message, to: str) -> dict[str, Any]:
    """The fields of a `fired` event."""
    return {"phase": FIRED, "id": message.id, "to": to, "message": message.to_dict()}


def sent(name: str) -> dict[str, Any]:
    return {"phase": SENT, "id": name}


def failed(
    name: str, told: Told, reason: str, now: float, *, wait_s: float = 0.0, last: bool = False
) -> dict[str, Any]:
    """The fields of a `failed` event, with when it is tried again.

    `wait_s`: what the receiver asked for; `last`: nobody will try again.
    """
    pause_s = max(wait_s, min(FIRST_PAUSE_S * 2.0**told.tries, LONGEST_PAUSE_S))
    over = last or now + pause_s > told.fired_t + GIVE_UP_AFTER_S
    return {"phase": FAILED, "id": name, "reason": reason, "due_t": None if over else now + pause_s}
