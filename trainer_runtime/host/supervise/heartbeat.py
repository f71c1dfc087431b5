"""A supervisor's heartbeats: samples of its host, in its journal."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from trainer_runtime.core.policy.heartbeat import HEARTBEAT_S
from trainer_runtime.host.watch.telemetry import Telemetry


class Heartbeat:
    """`write`: the journal's."""

    def __init__(
        self,
        write: Callable[[str, Mapping[str, object]], None],
        telemetry: Telemetry,
        clock: Callable[[], float],
    ) -> None:
        self._write, self._telemetry, self._clock = write, telemetry, clock
        self._due_t = 0.0
        self._recall_due_t = clock() + HEARTBEAT_S

    def beat(self) -> None:
        """Write a sample if one is due."""
        now = self._clock()
        if now >= self._due_t:
            self._due_t = now + HEARTBEAT_S
            self._write("sample", {"values": self._telemetry.sample(now)})

    def beat_meanwhile(self) -> None:
        """The same while the history is read, once that takes as long as a heartbeat."""
        if self._clock() >= self._recall_due_t:
            self.beat()
            self._recall_due_t = self._due_t
