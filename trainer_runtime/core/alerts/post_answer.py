"""The result of posting a message: the answer of `python -m trainer_runtime alert`."""

from __future__ import annotations

from dataclasses import dataclass

from trainer_runtime.core.decoding import Fields

# Seconds that a post takes at most, also with a receiver that sends a byte now and then.
LONGEST_S = 20


@dataclass(frozen=True, slots=True)
class PostAnswer:
    """`reason` says why it was not sent, in our own wording; `wait_s` is how long the receiver asks
    to wait. `status` is the receiver's code; `said` is its untrusted text."""

    sent: bool
    reason: str = ""
    wait_s: float = 0.0
    status: int | None = None
    said: str | None = None

    @classmethod
    def of(cls, fields: Fields) -> PostAnswer:
        return cls(
            sent=fields.flag("sent", False),
            reason=fields.text("reason", "the sender was ended"),
            wait_s=fields.number("wait_s", 0.0),
            status=fields.find_integer("status"),
            said=fields.find_text("said"),
        )
