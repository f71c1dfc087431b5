"""Saves checkpoints in the background: the loop waits only for a check and a copy in memory.

The copy goes into buffers that are allocated once; one writer thread writes it to disk. At most one
save is in flight. The writer reads the buffers' bytes and calls no PyTorch operator: an operator in
a second thread opens a second OpenMP pool, which slows every later step of the training down.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from trainer_runtime.core.files.manifest import Manifest
from trainer_runtime.train.attempt.events import EventLog
from trainer_runtime.train.attempt.nan_guard import NonFiniteError
from trainer_runtime.train.checkpoints.checkpoint_store import CheckpointStore, Written
from trainer_runtime.train.checkpoints.folder import write_folder

TensorFiles = Mapping[str, Mapping[str, Tensor]]


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """One checkpoint as the loop requests it; `metrics` were measured at this step."""

    step: int
    tensors: TensorFiles
    state: Mapping[str, Any]
    metrics: Mapping[str, float]


class Checkpoints:
    """Copies a training's state and lets one thread write the copies to the store."""

    def __init__(self, store: CheckpointStore, events: EventLog) -> None:
        self._store = store
        self._events = events
        self._staging: dict[str, dict[str, Tensor]] = {}
        self._writer = ThreadPoolExecutor(max_workers=1, thread_name_prefix="checkpoint")
        self._in_flight: Future[None] | None = None

    @property
    def last_verified(self) -> Written | None:
        """The newest save of this attempt that was read back whole."""
        return self._store.last_verified

    def allocate(self, tensors: TensorFiles) -> None:
        """Allocates the buffers early, so that the first save stalls no longer than later ones."""
        self._staging = {
            file: {name: _buffer(tensor) for name, tensor in part.items()}
            for file, part in tensors.items()
        }

    def save(self, checkpoint: Checkpoint) -> None:
        """Copies the state and lets the writer thread do the rest; waits for an earlier save.

        A save that fails (full or broken disk) is reported by events; training continues.

        Raises:
            NonFiniteError: the state holds NaN or infinity; it is not saved.
        """
        started_s = time.perf_counter()
        self.wait()
        self._refuse_non_finite(checkpoint)
        self._copy(checkpoint.tensors)
        stall_s = time.perf_counter() - started_s
        write = partial(self._write, checkpoint)
        self._in_flight = self._writer.submit(
            self._store.put, checkpoint.step, checkpoint.metrics, write, stall_s
        )

    def wait(self) -> None:
        """Returns when no save is in flight."""
        if self._in_flight is not None:
            self._in_flight.result()
            self._in_flight = None

    def close(self) -> None:
        """Waits for a save in flight."""
        self._writer.shutdown(wait=True)

    def _refuse_non_finite(self, checkpoint: Checkpoint) -> None:
        name = _first_non_finite(checkpoint.tensors)
        if name is not None:
            error = NonFiniteError("nan_weights", checkpoint.step, {name: math.nan})
            self._store.failed(checkpoint.step, str(error))
            raise error

    def _copy(self, tensors: TensorFiles) -> None:
        if not _fits(self._staging, tensors):
            self.allocate(tensors)
        sources = [tensor.detach() for part in tensors.values() for tensor in part.values()]
        buffers = [self._staging[file][name] for file, part in tensors.items() for name in part]
        on_cuda = any(tensor.is_cuda for tensor in sources)
        torch._foreach_copy_(buffers, sources, non_blocking=on_cuda)
        if on_cuda:
            torch.cuda.synchronize()

    def _write(self, checkpoint: Checkpoint, path: Path, manifest: Manifest) -> Manifest:
        documents = {"state": checkpoint.state}
        return write_folder(path, self._staging, documents, manifest, self._events.sync)


def _buffer(tensor: Tensor) -> Tensor:
    # Zeroed, so that the system hands the pages out now and not during the first save.
    return torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=tensor.is_cuda).zero_()


def _first_non_finite(tensors: TensorFiles) -> str | None:
    """The name of a tensor that holds NaN or infinity; None if every value is finite.

    Any such value makes a sum non-finite. A sum of finite values may overflow, unless it is taken
    in float64: that one decides.
    """
    floating = [
        (name, tensor.detach())
        for part in tensors.values()
        for name, tensor in part.items()
        if tensor.is_floating_point()
    ]
    if _all_finite([tensor.sum() for _, tensor in floating]):
        return None
    for name, tensor in floating:
        if not _all_finite([tensor.sum(dtype=torch.float64)]):
            return name
    return None


def _all_finite(sums: Sequence[Tensor]) -> bool:
    """Whether all scalars are finite; they are read at once, so that a GPU is waited for once."""
    by_device: dict[torch.device, list[Tensor]] = {}
    for total in sums:
        by_device.setdefault(total.device, []).append(total.double())
    read = [torch.stack(of_device).tolist() for of_device in by_device.values()]
    return all(math.isfinite(total) for totals in read for total in totals)


def _fits(staging: TensorFiles, tensors: TensorFiles) -> bool:
    return {file: set(part) for file, part in staging.items()} == {
        file: set(part) for file, part in tensors.items()
    } and all(
        staging[file][name].shape == tensor.shape and staging[file][name].dtype == tensor.dtype
        for file, part in tensors.items()
        for name, tensor in part.items()
    )
