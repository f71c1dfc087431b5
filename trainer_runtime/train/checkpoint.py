"""Saves checkpoints beside the training: the loop waits only for a copy in memory.

The copy goes into buffers that are allocated once; one writer thread puts it on the disk, reads it
back and checks it, and only then tells `verified` and prunes. At most one save is in flight.
"""

from __future__ import annotations

import math
import sys
import threading
import time
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from trainer_runtime.core.held import held_steps
from trainer_runtime.core.manifest import Manifest, ManifestError, read, verify
from trainer_runtime.train.events import EventLog
from trainer_runtime.train.folder import (
    drop_from_page_cache,
    remove_folder,
    remove_leftovers,
    write_folder,
)
from trainer_runtime.train.guard import NonFiniteError
from trainer_runtime.train.retention import Retention, Stored

NAME_PREFIX = "step-"

TensorFiles = Mapping[str, Mapping[str, Tensor]]


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


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """One checkpoint as the loop asks for it; `metrics` were measured at this very step."""

    step: int
    tensors: TensorFiles
    state: Mapping[str, Any]
    metrics: Mapping[str, float]


def checkpoint_name(step: int) -> str:
    """The name of a step's folder; names sort as the steps do."""
    return f"{NAME_PREFIX}{step:08d}"


def stored_steps(folder: Path) -> list[int]:
    """The steps of which there is a checkpoint folder, whole or not, oldest first."""
    names = (entry.name.removeprefix(NAME_PREFIX) for entry in folder.glob(f"{NAME_PREFIX}*"))
    return sorted(int(name) for name in names if name.isdigit())


class Checkpoints:
    """The checkpoints of a run, as its one trainer writes them."""

    def __init__(
        self, folder: Path, origin: Origin, retention: Retention, events: EventLog
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        remove_leftovers(folder)
        self._folder = folder
        self._origin = origin
        self._retention = retention
        self._events = events
        self._staging: dict[str, dict[str, Tensor]] = {}
        self._writer = ThreadPoolExecutor(max_workers=1, thread_name_prefix="checkpoint")
        self._in_flight: Future[None] | None = None
        self._lock = threading.Lock()
        self._last: Written | None = None
        # Later steps than the one resumed from are of a lineage that was left, or are damaged.
        self._superseded = {s for s in stored_steps(folder) if s > origin.started_from}

    @property
    def last_verified(self) -> Written | None:
        """The newest save of this attempt that was read back whole."""
        with self._lock:
            return self._last

    def allocate(self, tensors: TensorFiles) -> None:
        """Makes the buffers ahead of the first save, so that it stalls no longer than the rest."""
        self._staging = {
            file: {name: _buffer(tensor) for name, tensor in part.items()}
            for file, part in tensors.items()
        }

    def save(self, checkpoint: Checkpoint) -> None:
        """Copies the state and lets the writer thread do the rest; waits for an earlier save.

        A save that fails for want of space or a broken disk is told by events; training goes on.
        """
        started_s = time.perf_counter()
        self.wait()
        self._copy(checkpoint.tensors)
        stall_s = time.perf_counter() - started_s
        self._in_flight = self._writer.submit(
            self._write, checkpoint.step, checkpoint.state, checkpoint.metrics, stall_s
        )

    def wait(self) -> None:
        """Returns when no save is in flight.

        Raises:
            NonFiniteError: the state that was to be saved holds NaN or infinity; it was not.
        """
        if self._in_flight is not None:
            self._in_flight.result()
            self._in_flight = None

    def close(self) -> None:
        """Lets a save in flight come to its end."""
        self._writer.shutdown(wait=True)

    def _copy(self, tensors: TensorFiles) -> None:
        if not _fits(self._staging, tensors):
            self.allocate(tensors)
        sources = [tensor.detach() for part in tensors.values() for tensor in part.values()]
        buffers = [self._staging[file][name] for file, part in tensors.items() for name in part]
        on_cuda = any(tensor.is_cuda for tensor in sources)
        torch._foreach_copy_(buffers, sources, non_blocking=on_cuda)
        if on_cuda:
            torch.cuda.synchronize()

    def _write(
        self, step: int, state: Mapping[str, Any], metrics: Mapping[str, float], stall_s: float
    ) -> None:
        started_s = time.perf_counter()
        path = self._folder / checkpoint_name(step)
        others = [entry for entry in self._stored() if entry.step != step]
        current = [entry for entry in others if entry.step not in self._superseded]
        tags = self._retention.tags(current, Stored(step, metrics))
        described: dict[str, Any] = {"step": step, "path": f"{self._folder.name}/{path.name}"}
        try:
            _refuse_non_finite(step, self._staging)
            manifest = write_folder(
                path,
                self._staging,
                {"state": state},
                self._manifest(step, metrics, tags),
                self._events.sync,
            )
            write_s = time.perf_counter() - started_s
            self._superseded.discard(step)
            described |= {"size_bytes": manifest.size_bytes, "tags": tags, "metrics": dict(metrics)}
            self._events.emit(
                "checkpoint", action="saved", **described, stall_s=stall_s, write_s=write_s
            )
            drop_from_page_cache(path)
            problems = verify(path)
        except NonFiniteError as error:
            self._failed(described, str(error))
            raise
        except OSError as error:
            self._failed(described, f"{error.strerror or error}")
            return
        if problems:
            remove_folder(path)
            self._failed(described, f"read back, it differs: {'; '.join(problems)}")
            return
        self._events.emit("checkpoint", action="verified", **described)
        with self._lock:
            self._last = Written(step, stall_s, write_s)
        self._prune(step)

    def _manifest(self, step: int, metrics: Mapping[str, float], tags: list[str]) -> Manifest:
        origin = self._origin
        return Manifest(
            step, origin.attempt, time.time(), metrics, tuple(tags), origin.config_sha256, ()
        )

    def _stored(self) -> list[Stored]:
        found = []
        for step in stored_steps(self._folder):
            try:
                found.append(Stored(step, read(self._folder / checkpoint_name(step)).metrics))
            except ManifestError:
                # Nothing can be resumed from it, so it goes as what the run has left does.
                self._superseded.add(step)
                found.append(Stored(step, {}))
        return found

    def _prune(self, verified_step: int) -> None:
        held = held_steps(self._folder.parent)
        for step in self._retention.to_prune(
            self._stored(), verified_step, self._superseded, held - self._superseded
        ):
            path = self._folder / checkpoint_name(step)
            remove_folder(path)
            self._superseded.discard(step)
            self._events.emit(
                "checkpoint", action="pruned", step=step, path=f"{self._folder.name}/{path.name}"
            )

    def _failed(self, described: Mapping[str, Any], reason: str) -> None:
        message = f"the checkpoint of step {described['step']} was not saved: {reason}"
        print(f"warning: {message}", file=sys.stderr, flush=True)
        self._events.emit("checkpoint", action="failed", **described, reason=reason)
        self._events.emit(
            "warning", code="checkpoint_failed", step=described["step"], message=message
        )


def _buffer(tensor: Tensor) -> Tensor:
    # Zeroed, so that the system hands the pages out now and not during the first save.
    return torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=tensor.is_cuda).zero_()


def _refuse_non_finite(step: int, tensors: TensorFiles) -> None:
    for part in tensors.values():
        for name, tensor in part.items():
            # A float64 sum of narrower floats can't overflow, and shows any NaN or infinity.
            if tensor.is_floating_point() and not math.isfinite(tensor.sum(dtype=torch.float64)):
                raise NonFiniteError("nan_weights", step, {name: math.nan})


def _fits(staging: TensorFiles, tensors: TensorFiles) -> bool:
    return {file: set(part) for file, part in staging.items()} == {
        file: set(part) for file, part in tensors.items()
    } and all(
        staging[file][name].shape == tensor.shape and staging[file][name].dtype == tensor.dtype
        for file, part in tensors.items()
        for name, tensor in part.items()
    )
