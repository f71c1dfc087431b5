"""Which rank is slow: the time that each one's forward passes take.

Under DDP all ranks' steps last as long as the slowest one's, since they wait for its gradients in
the backward pass. A forward pass waits for nobody. Rank 0 records them as aggregates of all ranks.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import nn

from trainer_runtime.core.diagnosis.rank_aggregates import aggregate_ranks, described

KEY = "forward_time_s"
_RECORDED_EVERY_S = 2.0


class ForwardTime:
    """Times the forward passes of a model that learns; on a GPU by its own clock."""

    def __init__(self, model: nn.Module, *, is_cuda: bool) -> None:
        self._is_cuda = is_cuda
        self._begun: Any = None
        self._passes: list[tuple[Any, Any]] = []
        model.register_forward_pre_hook(self._begin)
        model.register_forward_hook(self._end)

    def take(self) -> float:
        """Seconds since the last call."""
        passes, self._passes = self._passes, []
        if not self._is_cuda:
            return float(sum(end - begin for begin, end in passes))
        for _, end in passes:
            end.synchronize()  # done by now, as the step's loss was read
        return float(sum(begin.elapsed_time(end) for begin, end in passes)) / 1000

    def _begin(self, *_: object) -> None:
        self._begun = self._now() if torch.is_grad_enabled() else None

    def _end(self, *_: object) -> None:
        if self._begun is not None:
            self._passes.append((self._begun, self._now()))
            self._begun = None

    def _now(self) -> Any:
        if not self._is_cuda:
            return time.perf_counter()
        event = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        event.record()
        return event


class RankPaces:
    """What all ranks report of every step; rank 0 records it every two seconds as its mean."""

    def __init__(self, emit: Callable[..., None], clock: Callable[[], float] = time.monotonic):
        self._emit, self._clock = emit, clock
        self._sums: list[float] = []
        self._steps = 0
        self._since_s = clock()
        self._forward_time: ForwardTime | None = None

    def time(self, model: nn.Module, *, is_cuda: bool) -> None:
        """Time this rank's forward passes of a model that learns."""
        self._forward_time = ForwardTime(model, is_cuda=is_cuda)

    def own_s(self) -> float:
        """Seconds of this rank's forward passes since the last call; 0 where none are timed."""
        return 0.0 if self._forward_time is None else self._forward_time.take()

    def add(self, step: int, seconds: Sequence[float]) -> None:
        """Take the time of each rank's forward passes in a step."""
        sums = self._sums or [0.0] * len(seconds)
        self._sums = [total_s + more for total_s, more in zip(sums, seconds, strict=True)]
        self._steps += 1
        now_s = self._clock()
        if now_s - self._since_s < _RECORDED_EVERY_S:
            return
        means = [sum_s / self._steps for sum_s in self._sums]
        self._sums, self._steps, self._since_s = [], 0, now_s
        self._emit("rank_metric", step=step, **described([aggregate_ranks(KEY, step, means)]))
