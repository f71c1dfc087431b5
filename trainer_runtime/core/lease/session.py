"""How long a place that is lent for a time may be used: `session.json` in the run's folder."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import Any

from trainer_runtime.core.decoding import Fields
from trainer_runtime.core.records import dataclass

SESSION = "session.json"
FORMAT_VERSION = 1


@dataclass(frozen=True, slots=True)
class Session:
    """Written by who begins a session, before its supervisor starts.

    `number` counts the run's sessions from 1; `begin_t` and `end_t` are Unix seconds, at `end_t`
    everything is gone; `margin_s` is kept free before that, for what follows the training's end.
    """

    number: int
    begin_t: float
    end_t: float
    margin_s: float

    def over_t(self, longest_save_s: float) -> float:
        """When the trainer is to save and end. Twice the longest save: one may be under way."""
        return self.end_t - self.margin_s - 2.0 * longest_save_s

    @property
    def kill_t(self) -> float:
        """When a trainer that does not end is killed, so that what it has saved can be kept."""
        return self.end_t - self.margin_s / 2.0

    def ended_at(self, now: float) -> Session:
        """This one, where all of it is over earlier: only the margin is left."""
        return replace(self, end_t=min(self.end_t, now + self.margin_s))

    def to_dict(self) -> dict[str, Any]:
        return {"v": FORMAT_VERSION, **asdict(self)}

    @classmethod
    def of(cls, fields: Fields) -> Session:
        """Fields it doesn't know are ignored."""
        return cls(
            number=fields.integer("number"),
            begin_t=fields.time("begin_t"),
            end_t=fields.time("end_t"),
            margin_s=fields.number("margin_s"),
        )
