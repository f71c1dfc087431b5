"""The checkpoints of a run on disk: named by step, verified before use, pruned by rule.

The writer decides how a checkpoint is written; this module decides which ones are kept and which
events are emitted, the same way for every framework.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trainer_runtime.core.checkpoints.kept_checkpoints import pinned_steps
from trainer_runtime.core.files.manifest import Manifest, ManifestError, read, verify
from trainer_runtime.train.attempt.config import RunConfig
from trainer_runtime.train.attempt.events import EventLog
from trainer_runtime.train.attempt.exit_codes import NotSavedError
from trainer_runtime.train.checkpoints.folder import (
    drop_from_page_cache,
    put_back,
    remove_folder,
    remove_leftovers,
    set_aside,
    settle_set_aside,
)
from trainer_runtime.train.checkpoints.retention import Retention, Stored

NAME_PREFIX = "step-"
# Of what a manifest records among its metrics for a resume alone; events leave it out.
STATE = "state/"

# Puts a checkpoint at a path, under a manifest that still lacks its files; the one written.
Write = Callable[[Path, Manifest], Manifest]


@dataclass(frozen=True, slots=True)
class Written:
    """The last verified save: how long the loop stood still and how long writing took."""

    step: int
    stall_s: float
    write_s: float


@dataclass(frozen=True, slots=True)
class Origin:
    """What goes into every manifest of an attempt. `started_from`: the step resumed from, or 0."""

    attempt: int
    config_sha256: str
    started_from: int


def final_manifest(config: RunConfig, step: int, metrics: Mapping[str, float]) -> Manifest:
    """Of the final model, as it is at `step`; its files are still to be added."""
    number, digest = config.attempt.number, config.sha256
    return Manifest(step, number, time.time(), metrics, ("final",), digest, ())


def require_verified(step: int, last: Written | None) -> None:
    """Raises: NotSavedError: the last verified save is not of `step`; events give the reason."""
    if last is None or last.step != step:
        raise NotSavedError(f"the state of step {step} could not be saved; see the warnings above")


def checkpoint_name(step: int) -> str:
    """The name of a step's folder; names sort as the steps do."""
    return f"{NAME_PREFIX}{step:08d}"


def stored_steps(folder: Path) -> list[int]:
    """The steps of which there is a checkpoint folder, whole or not, oldest first."""
    names = (entry.name.removeprefix(NAME_PREFIX) for entry in folder.glob(f"{NAME_PREFIX}*"))
    return sorted(int(name) for name in names if name.isdigit())


def saved_by(folder: Path, step: int) -> int | None:
    """The attempt that saved the checkpoint of `step`; None where its manifest is not whole."""
    try:
        return read(folder / checkpoint_name(step)).attempt
    except ManifestError:
        return None


def saved_metrics(folder: Path, step: int) -> Mapping[str, float]:
    """What the checkpoint of `step` records as measured then."""
    try:
        return read(folder / checkpoint_name(step)).metrics
    except ManifestError:
        return {}


def _left_behind(folder: Path, started_from: int) -> set[int]:
    """The steps whose checkpoints an attempt that starts from `started_from` does not continue:
    later ones, and those of attempts that came after the one that had saved its start."""
    origin = saved_by(folder, started_from)
    return {
        step
        for step in stored_steps(folder)
        if step > started_from or (origin is not None and (saved_by(folder, step) or 0) > origin)
    }


class CheckpointStore:
    """The checkpoints of a run, written by its single trainer; one thread at a time calls `put`."""

    def __init__(
        self, folder: Path, origin: Origin, retention: Retention, events: EventLog
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        remove_leftovers(folder)
        settle_set_aside(folder, lambda path: not verify(path))
        self.folder = folder
        self._origin = origin
        self._retention = retention
        self._events = events
        self._lock = threading.Lock()
        self._last: Written | None = None
        self._superseded = _left_behind(folder, origin.started_from)
        self._whole: dict[int, bool] = {}

    @property
    def last_verified(self) -> Written | None:
        """The newest save of this attempt that was read back whole."""
        with self._lock:
            return self._last

    def put(self, step: int, metrics: Mapping[str, float], write: Write, stall_s: float) -> None:
        """Writes, verifies, reports and prunes. `stall_s`: how long the training waited for it.

        A save that fails (full or broken disk) is reported by events.
        """
        started_s = time.perf_counter()
        path = self.folder / checkpoint_name(step)
        others = [entry for entry in self._stored() if entry.step != step]
        current = [entry for entry in others if entry.step not in self._superseded]
        tags = self._retention.tags(current, Stored(step, metrics))
        described: dict[str, Any] = {"step": step, "path": f"{self.folder.name}/{path.name}"}
        replaced = None
        try:
            replaced = set_aside(path) if step in self._superseded else None
            manifest = write(path, self._manifest(step, metrics, tags))
            write_s = time.perf_counter() - started_s
            self._superseded.discard(step)
            results = {key: of for key, of in metrics.items() if not key.startswith(STATE)}
            described |= {"size_bytes": manifest.size_bytes, "tags": tags, "metrics": results}
            self._events.emit(
                "checkpoint", action="saved", **described, stall_s=stall_s, write_s=write_s
            )
            drop_from_page_cache(path)
            problems = verify(path)
        except OSError as error:
            self._put_back(replaced, path)
            self._failed(described, f"{error.strerror or error}")
            return
        if problems:
            remove_folder(path)
            self._put_back(replaced, path)
            self._failed(described, f"read back, it differs: {'; '.join(problems)}")
            return
        if replaced is not None:
            remove_folder(replaced)
        self._events.emit("checkpoint", action="verified", **described)
        with self._lock:
            self._last = Written(step, stall_s, write_s)
        self._prune(step)

    def failed(self, step: int, reason: str) -> None:
        """Reports a checkpoint that could not be written; called from the loop's thread."""
        path = f"{self.folder.name}/{checkpoint_name(step)}"
        self._failed({"step": step, "path": path}, reason)

    def _manifest(self, step: int, metrics: Mapping[str, float], tags: list[str]) -> Manifest:
        origin = self._origin
        return Manifest(
            step, origin.attempt, time.time(), metrics, tuple(tags), origin.config_sha256, ()
        )

    def _stored(self) -> list[Stored]:
        checkpoints = []
        for step in stored_steps(self.folder):
            try:
                checkpoints.append(Stored(step, read(self.folder / checkpoint_name(step)).metrics))
            except ManifestError:
                # Nothing can be resumed from it, so it goes as what the run has left does.
                self._superseded.add(step)
                checkpoints.append(Stored(step, {}))
        return checkpoints

    def _put_back(self, replaced: Path | None, path: Path) -> None:
        """The superseded checkpoint that a save was to replace stands again."""
        if replaced is not None:
            put_back(replaced, path)
            self._superseded.add(int(path.name.removeprefix(NAME_PREFIX)))

    def _prune(self, verified_step: int) -> None:
        pinned = pinned_steps(self.folder.parent)
        held = pinned - self._superseded
        for step in self._retention.to_prune(
            self._stored(), verified_step, self._superseded, held, self._is_whole
        ):
            path = self.folder / checkpoint_name(step)
            # First: after a kill in between, it stands and is not listed, and goes the next time.
            self._events.emit(
                "checkpoint", action="pruned", step=step, path=f"{self.folder.name}/{path.name}"
            )
            remove_folder(path)
            self._superseded.discard(step)

    def _is_whole(self, step: int) -> bool:
        """Whether a superseded checkpoint verifies, which is read once."""
        if step not in self._whole:
            self._whole[step] = not verify(self.folder / checkpoint_name(step))
        return self._whole[step]

    def _failed(self, described: Mapping[str, Any], reason: str) -> None:
        message = f"the checkpoint of step {described['step']} was not saved: {reason}"
        print(f"warning: {message}", file=sys.stderr, flush=True)
        self._events.emit("checkpoint", action="failed", **described, reason=reason)
        self._events.emit(
            "warning", code="checkpoint_failed", step=described["step"], message=message
        )
