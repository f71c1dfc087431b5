"""How fast a step is: throughput, and the utilisation of the device (MFU)."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from trainer_runtime.core.config.curriculum import Curriculum


@dataclass(frozen=True, slots=True)
class Cost:
    """What a step takes. FLOPs count the forward and the backward pass."""

    curriculum: Curriculum
    flops_per_token: float
    peak_flops: float | None

    @classmethod
    def of(cls, curriculum: Curriculum, parameters: int, peak_flops: float | None) -> Cost:
        """6 N + 12 L d T per token unless the plan knows better (Chowdhery et al. 2022,
        arXiv:2204.02311, appendix B: PaLM's model FLOPs, with attention counted in full)."""
        config, model = curriculum.config, curriculum.config.model
        estimate = 6 * parameters + 12 * model.n_layer * model.d_model * config.data.seq_len
        return cls(
            curriculum=curriculum,
            flops_per_token=float(config.derived.flops_per_token or estimate),
            peak_flops=peak_flops,
        )

    def speed(self, step_time_s: float, data_time_s: float, tokens: float) -> dict[str, float]:
        """Throughput under the field's own names; `tokens` are this step's."""
        tokens_per_s = tokens / step_time_s
        flops = tokens_per_s * self.flops_per_token
        values = {
            "tokens_per_s": tokens_per_s,
            "step_time_s": step_time_s,
            "data_time_share": data_time_s / step_time_s,
            "tflops": flops / 1e12,
        }
        if self.peak_flops:
            values["mfu"] = flops / self.peak_flops
        return values


class StepClock:
    """Times steps, without evaluation and saving."""

    def __init__(self) -> None:
        self._mark_s = time.perf_counter()
        self._data_time_s = 0.0
        self.last_step_time_s = 0.0
        # For step_profiler.py: `begin`, `data` or `end`, and the seconds of the last two.
        self.mark: Callable[[str, float], None] | None = None

    def resume(self) -> None:
        """Restarts the time of a step, after work that must not be counted."""
        self._mark_s = time.perf_counter()
        self._data_time_s = 0.0
        if self.mark is not None:
            self.mark("begin", 0.0)

    def data_arrived(self) -> None:
        """Counts all the time of this step so far as waiting for data."""
        self._data_time_s = time.perf_counter() - self._mark_s
        if self.mark is not None:
            self.mark("data", self._data_time_s)

    def add_data_time(self, seconds: float) -> None:
        self._data_time_s += seconds
        if self.mark is not None:
            self.mark("data", seconds)

    def step_ended(self) -> tuple[float, float]:
        """(step_time_s, data_time_s) since the last step ended or the clock was resumed."""
        now_s = time.perf_counter()
        times = max(now_s - self._mark_s, 1e-9), self._data_time_s
        self._mark_s, self._data_time_s = now_s, 0.0
        self.last_step_time_s = times[0]
        if self.mark is not None:
            self.mark("end", times[0])
        return times
