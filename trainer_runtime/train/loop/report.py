"""The report of one optimizer step: the values of its `metric` event, and a line for people."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping

_LINE_INTERVAL_S = 1.0
_LARGEST_EXPONENT = 700.0  # of which a float holds the exponential


class Lines:
    """Prints at most about one line of steps a second; the events hold every step."""

    def __init__(self, target_step: int) -> None:
        self._target_step = target_step
        self._printed_s = float("-inf")

    def step(self, step: int, values: Mapping[str, float]) -> None:
        now_s = time.monotonic()
        if now_s - self._printed_s < _LINE_INTERVAL_S and step != self._target_step:
            return
        self._printed_s = now_s
        parts = [
            f"step {step}/{self._target_step}",
            f"loss {values['loss']:.4f}",
            f"lr {values['lr']:.2e}",
            f"grad_norm {values['grad_norm']:.3f}",
        ]
        if "tokens_per_s" in values:
            parts.append(f"{values['tokens_per_s']:,.0f} tok/s")
            parts.append(f"{values['step_time_s'] * 1e3:,.0f} ms")
        if "mfu" in values:
            parts.append(f"mfu {values['mfu']:.1%}".replace("%", " %"))
        print(" | ".join(parts), flush=True)

    def evaluation(self, step: int, loss: float, batches: int) -> None:
        print(f"step {step}: val_loss {loss:.4f} ({batches} batches)", flush=True)


def perplexity(loss: float) -> float:
    """Of a mean negative log-likelihood per token in nats."""
    return math.exp(min(loss, _LARGEST_EXPONENT))
