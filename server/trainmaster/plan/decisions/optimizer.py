"""The optimizer's open values, and the schedule where it has none."""

from __future__ import annotations

from typing import Any

from trainer_runtime.core.config.optimizers import OPTIMIZERS
from trainmaster.plan.decisions.model import Network
from trainmaster.plan.result import Ledger
from trainmaster.plan.spec import TrainingSpec

_CONSTANT = "constant"
_BETAS_OF_NGRAMS = [0.9, 0.99]


def choose_optimizer(spec: TrainingSpec, network: Network, ledger: Ledger) -> dict[str, Any]:
    """The config's section but for the rate: `auto` are the optimizer's usual values."""
    section, record = spec.optimizer.model_dump(mode="json"), OPTIMIZERS[spec.optimizer.name]
    betas = None if record.betas is None else list(record.betas)
    model = network.architecture
    if section["betas"] == "auto" and betas and model is not None and model.ngram_embeddings:
        betas = _BETAS_OF_NGRAMS
        ledger.decide("optimizer.betas", betas, "Rows of n-grams are rare.")
    usual = {
        "betas": betas,
        "momentum": record.momentum,
        "eps": record.eps,
        "decay": record.usual_decay,
    }
    return section | {name: value for name, value in usual.items() if section[name] == "auto"}


def choose_schedule_kind(spec: TrainingSpec, ledger: Ledger) -> str:
    """The spec's, but for an optimizer that needs none: it averages instead of decaying."""
    kind = spec.schedule.kind
    if not OPTIMIZERS[spec.optimizer.name].averages or kind == _CONSTANT:
        return kind
    if "kind" in spec.schedule.model_fields_set:
        ledger.warn(
            f"schedule.kind is {kind}, but {spec.optimizer.name} averages its weights in place of "
            "a decay of the rate: constant is what it is made for."
        )
        return kind
    reason = f"{spec.optimizer.name} averages its weights in place of a decay of the rate."
    ledger.decide("schedule.kind", _CONSTANT, reason, "Defazio et al. 2024 (arXiv 2405.15682)")
    return _CONSTANT
