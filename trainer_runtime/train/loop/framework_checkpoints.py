"""The checkpoints of an attempt whose framework writes them, as every rank sees them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from trainer_runtime.train.attempt.config import RunConfig
from trainer_runtime.train.attempt.events import EventLog
from trainer_runtime.train.checkpoints import gathering, restore
from trainer_runtime.train.checkpoints.checkpoint_store import (
    checkpoint_name,
    saved_metrics,
)
from trainer_runtime.train.checkpoints.checkpointer import CHECKPOINTS
from trainer_runtime.train.checkpoints.framework_checkpointer import FrameworkCheckpointer
from trainer_runtime.train.distributed.ranks import Ranks
from trainer_runtime.train.loop.speed import StepClock


class FrameworkCheckpoints:
    """Chooses the checkpoint to begin with, and has those that follow sealed.

    Every rank calls it alike; only rank 0 has a checkpointer, which acts. `resumed_step`,
    `skipped` and `gathering` are there once `choose` was called. The clock doesn't count the time
    that rank 0 takes.
    """

    gathering: gathering.Gathering

    def __init__(
        self, config: RunConfig, ranks: Ranks, events: EventLog | None, clock: StepClock
    ) -> None:
        self._config, self._ranks, self._events, self._clock = config, ranks, events, clock
        self._checkpointer: FrameworkCheckpointer | None = None
        self.resumed_step: int | None = None
        self.skipped: list[restore.Skipped] = []

    def choose(self) -> Mapping[str, float]:
        """Chooses the newest checkpoint that verifies; what was measured when it was saved.

        Rank 0 reads every byte and broadcasts its choice.

        Raises:
            ConfigError: the checkpoint asked for is missing or damaged.
        """
        saved: Mapping[str, float]
        step, skipped, saved = self._ranks.broadcast("resume", self._chosen)
        self.resumed_step = step
        self.skipped = [restore.Skipped(*entry) for entry in skipped]
        self.gathering = gathering.Gathering(self._ranks, self._config)
        return saved

    @property
    def resumed(self) -> Path | None:
        """The folder of the checkpoint that the attempt begins with, once it is chosen."""
        step = self.resumed_step
        return None if step is None else CHECKPOINTS / checkpoint_name(step)

    def is_due(self, step: int) -> bool:
        """Whether this rank's cadence asks for one after this step; rank 0's alone does."""
        checkpointer, step_time_s = self._checkpointer, self._clock.last_step_time_s
        return checkpointer is not None and checkpointer.is_due(step, step_time_s)

    def try_write(
        self,
        step: int,
        written: Path,
        write: Callable[[], object],
        on_any_rank: Callable[[bool], bool],
    ) -> bool:
        """Lets the framework write a checkpoint to `written`; whether all ranks succeeded.

        A full disk costs only this checkpoint, and is reported; it ends the attempt only where
        ranks wait for each other while they write.
        """
        if not gathering.is_written_alone(self._config):
            write()
            return True
        reason = gathering.failure_of(write)
        if not on_any_rank(reason is not None):
            return True
        if self._checkpointer is not None:
            reason = reason or "another rank could not write its part"
            self._checkpointer.discard(step, written, reason)
            self._clock.resume()
        return False

    def seal(
        self,
        step: int,
        written: Path,
        metrics: Mapping[str, float],
        stall_s: float,
        *,
        is_last: bool,
    ) -> None:
        """Seals what all ranks have written below `written` as the step's checkpoint.

        Returns at once: a thread computes digests, verifies and prunes. `written` is moved.
        `stall_s` is how long the training has waited for it so far.
        """
        awaited = self.gathering.bring(written, step)
        if self._checkpointer is not None:
            self._checkpointer.save(
                step, written, metrics, stall_s, awaited=awaited, is_last=is_last
            )
            self._clock.resume()

    def require_saved(self, step: int) -> None:
        """Waits for the checkpoint in flight; raises NotSavedError if that of `step` isn't."""
        if self._checkpointer is not None:
            self._checkpointer.require_saved(step)

    def export(self, step: int, final: Path, metrics: Mapping[str, float]) -> None:
        """Seals `final` as ./final; raises NotSavedError if it can't be written."""
        if self._checkpointer is not None:
            self._checkpointer.export(step, final, metrics)

    def close(self) -> None:
        """Waits for a save in flight."""
        if self._checkpointer is not None:
            self._checkpointer.close()

    def _chosen(self) -> tuple[int | None, list[tuple[int, str]], dict[str, float]]:
        step, skipped = restore.choose(CHECKPOINTS, self._config.attempt.resume)
        # Before any rank knows: it removes what no other rank may have begun to write.
        if self._events is not None:
            self._checkpointer = FrameworkCheckpointer(self._config, self._events, step)
        metrics = {} if step is None else dict(saved_metrics(CHECKPOINTS, step))
        return step, [(entry.step, entry.reason) for entry in skipped], metrics
