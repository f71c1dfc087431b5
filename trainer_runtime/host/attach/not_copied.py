"""Reports that a source is followed by its position alone, and that copying continues."""

from __future__ import annotations

from trainer_runtime.core.diagnosis.detectors.not_copied import COPIED, NOT_COPIED
from trainer_runtime.core.policy.write_bounds import Refusal
from trainer_runtime.host.attach.log_events import LogEvents

_REPORT_EVERY_S = 10.0


class NotCopied:
    """One attempt's. A change is reported once it is seen, but not within ten seconds of the last
    one: a disk may have room for one more piece again and again."""

    def __init__(self, events: LogEvents) -> None:
        self._events = events
        self._reported: str | None = None
        self._due_t = 0.0

    def note(self, refusal: Refusal | None, position: tuple[int, int], now: float) -> None:
        """Take in which bound is in the way, if any, and how far the source was read."""
        bound = None if refusal is None else refusal.bound
        if bound == self._reported or now < self._due_t:
            return
        self._reported, self._due_t = bound, now + _REPORT_EVERY_S
        if refusal is None:
            self._events.decide(COPIED)
            return
        read, length = position
        self._events.decide(
            NOT_COPIED, bound=refusal.bound, limit=refusal.limit, read_bytes=read, bytes=length
        )
