"""Decides the implementation of attention in models of transformers."""

from __future__ import annotations

from trainmaster.errors.errors import PlanError
from trainmaster.plan.decisions.target import Target
from trainmaster.plan.facts import ModelFacts
from trainmaster.plan.fields.place import place
from trainmaster.plan.frameworks import framework_of
from trainmaster.plan.result import Ledger
from trainmaster.plan.spec import TrainingSpec

# By `model_type`: gemma2's own authors advise eager attention for training.
_CAPPED_SCORES = ("gemma2", "vaultgemma")


def choose_attention(
    spec: TrainingSpec, facts: ModelFacts | None, target: Target, ledger: Ledger
) -> str | None:
    """The implementation of attention; None for transformers' usual one.

    Raises:
        PlanError: INVALID_VALUE, the device or the precision has no such implementation.
    """
    attention, arch = spec.model.attention, spec.model.arch
    if attention == "flash_attention_2" and (target.device == "cpu" or target.precision == "fp32"):
        where = "a CPU" if target.device == "cpu" else "fp32"
        raise PlanError(
            "INVALID_VALUE",
            f"`model.attention` is flash_attention_2, which does not compute on {where}.",
            "Set it to sdpa or auto, or take a host with a GPU and precision bf16.",
            field="model.attention",
        )
    if attention != "auto":
        return attention
    if not place(framework_of(spec).places.get("model.attention", "")).where:
        return None
    kind = arch or ("" if facts is None else facts.model_type)
    if kind in _CAPPED_SCORES:
        reason = f"{kind} caps its scores, which the fused implementation would leave out."
        ledger.decide("model.attention", "eager", reason)
        return "eager"
    if arch is not None or spec.continues:
        reason = "PyTorch's fused attention; an architecture that lacks it computes eagerly."
        ledger.decide("model.attention", "sdpa", reason)
    return None
