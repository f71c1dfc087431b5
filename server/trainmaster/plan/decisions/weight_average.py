"""Records what averaged weights cost, and refuses them where they can't be kept."""

from __future__ import annotations

from trainer_runtime.core.protocol.figures import gib_text
from trainmaster.errors.errors import PlanError
from trainmaster.plan.decisions.memory import AVERAGE_BYTES, GIB
from trainmaster.plan.result import Ledger
from trainmaster.plan.spec import TrainingSpec

_WHOLE = ("single", "ddp")


def record_average_cost(
    spec: TrainingSpec, strategy: str, trained: int | None, ledger: Ledger
) -> None:
    """Record the cost of `checkpoint.ema`; nothing without it.

    Raises:
        PlanError: INVALID_VALUE, the ranks have parts of the weights.
    """
    if spec.checkpoint.ema is None:
        return
    if strategy not in _WHOLE:
        raise PlanError(
            "INVALID_VALUE",
            f"`checkpoint.ema` is given, but under `compute.strategy` {strategy} no rank has the "
            "whole weights to average.",
            "Remove it, or set compute.strategy to ddp.",
            field="checkpoint.ema",
        )
    size = "" if trained is None else f" ({gib_text(trained * AVERAGE_BYTES / GIB)})"
    reason = (
        f"The average takes 4 bytes a trained parameter{size} in memory and in each checkpoint, a "
        "pass over the weights each step, and a second evaluation each time."
    )
    ledger.decide("checkpoint.ema", spec.checkpoint.ema, reason)
