"""When a run's next checkpoint is due; decided on the host once a save has been measured."""

from __future__ import annotations

import time

from trainer_runtime.core.config.curriculum import Curriculum
from trainer_runtime.train.attempt.config import RunConfig
from trainer_runtime.train.attempt.events import EventLog
from trainer_runtime.train.checkpoints.cadence import Cadence
from trainer_runtime.train.checkpoints.checkpoint_store import CheckpointStore


class SavesDue:
    """Follows one attempt from `start_step`, which needs no save if it was `resumed`."""

    def __init__(
        self,
        config: RunConfig,
        store: CheckpointStore,
        events: EventLog,
        start_step: int,
        *,
        resumed: bool,
    ) -> None:
        self._config = config
        self._store = store
        self._events = events
        self._start_step = start_step
        self._borders = Curriculum.of(config).borders
        self.saved_step = start_step if resumed else -1
        self._cadence = Cadence.of(config.checkpoint, start_step, time.monotonic())

    def is_due(self, step: int, step_time_s: float) -> bool:
        """True if a checkpoint belongs after this step; the last step's is not included."""
        if self._cadence.undecided:
            self._decide(step, step_time_s)
        if step in (self.saved_step, self._config.steps):
            return False
        if step in self._borders:
            return True
        every = self._config.evaluation.every_steps
        evaluation_in_s = -step % every * step_time_s if every else None
        return self._cadence.is_due(step, time.monotonic(), evaluation_in_s)

    def saved(self, step: int) -> None:
        """Records that a save has begun."""
        self.saved_step = step
        self._cadence.saved_at_s = time.monotonic()

    def _decide(self, step: int, step_time_s: float) -> None:
        written = self._store.last_verified
        if written is None:
            return
        expected_job_s = (self._config.steps - self._start_step) * step_time_s
        reason = self._cadence.decide(written.stall_s, written.write_s, expected_job_s)
        value = f"{self._cadence.interval_s:.0f}s"
        self._events.emit("decision", what="checkpoint_every", value=value, reason=reason)
