"""Seals the checkpoints and the final model that a framework wrote."""

from __future__ import annotations

import shutil
import time
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait
from functools import partial
from pathlib import Path

from trainer_runtime.core.files.manifest import Manifest
from trainer_runtime.core.files.parts import Awaited
from trainer_runtime.train.attempt.config import RunConfig
from trainer_runtime.train.attempt.events import EventLog
from trainer_runtime.train.attempt.exit_codes import NotSavedError
from trainer_runtime.train.checkpoints.checkpoint_store import (
    CheckpointStore,
    Origin,
    final_manifest,
    require_verified,
)
from trainer_runtime.train.checkpoints.checkpointer import CHECKPOINTS, FINAL
from trainer_runtime.train.checkpoints.due import SavesDue
from trainer_runtime.train.checkpoints.folder import remove_leftovers, seal_folder
from trainer_runtime.train.checkpoints.retention import Retention

# A training stands still for the hosts' network so long at most, per checkpoint.
_LONGEST_PAUSE_S = 300.0


class FrameworkCheckpointer:
    """Turns folders that a framework wrote into verified checkpoints; used by rank 0 only.

    One thread computes digests, verifies and prunes. At most one checkpoint is in flight.
    """

    def __init__(
        self,
        config: RunConfig,
        events: EventLog,
        resumed_step: int | None,
        *,
        longest_pause_s: float = _LONGEST_PAUSE_S,
    ) -> None:
        """`resumed_step`: the step of the checkpoint resumed from; None: a start from scratch.

        `longest_pause_s`: how long a save waits for an earlier one that other hosts have parts of.
        """
        self._config = config
        self._events = events
        self._longest_pause_s = longest_pause_s
        self._resumed_step = resumed_step
        start_step = resumed_step or 0
        origin = Origin(config.attempt.number, config.sha256, start_step)
        self._store = CheckpointStore(CHECKPOINTS, origin, Retention.of(config), events)
        resumed = resumed_step is not None
        self._due = SavesDue(config, self._store, events, start_step, resumed=resumed)
        self._writer = ThreadPoolExecutor(max_workers=1, thread_name_prefix="checkpoint")
        self._in_flight: Future[None] | None = None

    def is_due(self, step: int, step_time_s: float) -> bool:
        """True if a checkpoint belongs after this step; the last step's is not included."""
        return self._due.is_due(step, step_time_s)

    def save(
        self,
        step: int,
        written: Path,
        metrics: Mapping[str, float],
        stall_s: float,
        *,
        awaited: Awaited | None = None,
        is_last: bool = False,
    ) -> None:
        """Seals `written` in the background as the step's checkpoint; waits for an earlier one.

        `stall_s`: how long the training has waited for this checkpoint so far. `awaited`: parts
        that other hosts have written; it counts once they are here. Where an earlier one takes
        very long to come, this one is left out, unless it `is_last`. A failure is reported by
        events.
        """
        waiting_s = time.perf_counter()
        is_bounded = awaited is not None and not is_last
        if not self._has_ended(self._longest_pause_s if is_bounded else None):
            waited = f"after {self._longest_pause_s:.0f} s"
            reason = f"the one before is still on its way between the hosts {waited}"
            shutil.rmtree(written, ignore_errors=True)
            self._store.failed(step, reason)
            self._due.saved(step)
            return
        if awaited is not None:
            awaited.ask()
        stall_s += time.perf_counter() - waiting_s
        write = partial(self._seal, written, awaited)
        self._in_flight = self._writer.submit(self._store.put, step, metrics, write, stall_s)
        self._due.saved(step)

    def discard(self, step: int, written: Path, reason: str) -> None:
        """Removes and reports a checkpoint that the framework could not write whole."""
        # An incomplete checkpoint would only take the disk space of the next one.
        shutil.rmtree(written, ignore_errors=True)
        self._wait()
        self._store.failed(step, reason)
        self._due.saved(step)

    def require_saved(self, step: int) -> None:
        """Waits for the checkpoint in flight.

        Raises:
            NotSavedError: the state of `step` is not saved; events give the reason.
        """
        self._wait()
        if step != self._resumed_step:
            require_verified(step, self._store.last_verified)

    def export(self, step: int, written: Path, metrics: Mapping[str, float]) -> None:
        """Seals `written` as ./final.

        Raises:
            NotSavedError: it can't be written.
        """
        remove_leftovers(FINAL.parent)
        manifest = final_manifest(self._config, step, metrics)
        try:
            seal_folder(written, FINAL, manifest, self._events.sync)
        except OSError as error:
            raise NotSavedError(f"the final model can't be written: {error}") from error

    def close(self) -> None:
        """Waits for the checkpoint in flight."""
        self._writer.shutdown(wait=True)

    def _wait(self) -> None:
        self._has_ended(None)

    def _has_ended(self, within_s: float | None) -> bool:
        """Whether no checkpoint is in flight any more, after so long at most."""
        if self._in_flight is not None:
            if not wait([self._in_flight], within_s).done:
                return False
            self._in_flight.result()
            self._in_flight = None
        return True

    def _seal(
        self, written: Path, awaited: Awaited | None, path: Path, manifest: Manifest
    ) -> Manifest:
        try:
            if awaited is not None:
                awaited.gather(written)
            return seal_folder(written, path, manifest, self._events.sync)
        except OSError:
            shutil.rmtree(written, ignore_errors=True)  # as in `discard`
            raise
        finally:
            if awaited is not None:
                awaited.forget()
