"""How long a place that is lent for a time may be used: `session.json` in the run's folder."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any

from trainer_runtime.core.decoding import JsonRecord

SESSION = "session.json"
FORMAT_VERSION = 1


@dataclass(frozen=True, slots=True)
class Session(JsonRecord):
    """Written by who begins a session, before its supervisor starts.

    `number` counts the run's sessions from 1; `begin_t` and `end_t` are Unix seconds, at `end_t`
    everything is gone; `margin_s` is kept free before that, for what follows the training's end.
    `save_s` is what a save is expected to take, until one was measured. `after_kill_s` is what
    follows the kill of a trainer that does not end; None: half the margin.
    """

    number: int
    begin_t: float
    end_t: float
    margin_s: float
    save_s: float | None = None
    after_kill_s: float | None = None

    def over_t(self, longest_save_s: float) -> float:
        """When the trainer is to save and end; `longest_save_s` 0: none was measured. Twice that:
        one may be under way."""
        return self.end_t - self.margin_s - 2.0 * (longest_save_s or self.save_s or 0.0)

    @property
    def kill_t(self) -> float:
        """When a trainer that does not end is killed, so that what it has saved can be kept."""
        after_s = self.margin_s / 2.0 if self.after_kill_s is None else self.after_kill_s
        return self.end_t - after_s

    def ended_at(self, now: float) -> Session:
        """This one, where all of it is over earlier: only the margin is left."""
        return replace(self, end_t=min(self.end_t, now + self.margin_s))

    def asked_at(self, now: float, end_t: float) -> Session:
        """This one, where its trainer is asked to save now, and all of it is over at `end_t`."""
        left_s = max(0.0, end_t - now)
        after_s = None if self.after_kill_s is None else min(self.after_kill_s, left_s / 4.0)
        return replace(self, end_t=now + left_s, margin_s=left_s, after_kill_s=after_s)

    def to_dict(self) -> dict[str, Any]:
        known = {name: value for name, value in asdict(self).items() if value is not None}
        return {"v": FORMAT_VERSION, **known}
