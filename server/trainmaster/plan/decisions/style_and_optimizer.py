"""The style and the optimizer of a new model, which belong together, where a spec names neither."""

from __future__ import annotations

from trainmaster.plan.frameworks import framework_of
from trainmaster.plan.result import Ledger
from trainmaster.plan.spec import TrainingSpec

_STYLE, _OPTIMIZER, _USUAL_OPTIMIZER = "modern", "muon", "adamw"
# Of the model: what `modern` does not have, or what is said of another style.
_OTHERS = ("preset", "norm", "activation", "window", "rope_base")
_REASON = "New models learn fastest so. GPT-2's way: style gpt2 or optimizer adamw."
_SOURCE = "design/trainer.md"
RATE = 8.0
RATE_SOURCE = "Karpathy 2025 (nanochat); design/trainer.md"


def is_modern_by_muon(spec: TrainingSpec) -> bool:
    """Whether the two are trained together; `spec` names them."""
    return (spec.model.style, spec.optimizer.name) == (_STYLE, _OPTIMIZER)


def with_style_and_optimizer(spec: TrainingSpec, ledger: Ledger) -> TrainingSpec:
    """The spec with a named optimizer, and with the style that belongs to it."""
    if spec.optimizer.name != "auto":
        return spec
    if not _learns_by_muon(spec):
        return _with(spec, _USUAL_OPTIMIZER, spec.model.style)
    if spec.model.style == "auto":
        ledger.decide("model.style", _STYLE, _REASON, _SOURCE)
    ledger.decide("optimizer.name", _OPTIMIZER, f"Goes with {_STYLE}.")
    return _with(spec, _OPTIMIZER, _STYLE)


def _learns_by_muon(spec: TrainingSpec) -> bool:
    """Whether it is a model of ours that is `modern` or may be."""
    model = spec.model
    if not framework_of(spec).has_modern or model.style not in ("auto", _STYLE):
        return False
    if model.style == _STYLE:
        return True
    has_pairs = model.n_head is not None and (model.d_model or 0) // model.n_head % 2 == 0
    is_open = all(getattr(model, name) is None for name in _OTHERS)
    return has_pairs and is_open and not spec.compute.fp8_lm_head


def _with(spec: TrainingSpec, optimizer: str, style: str) -> TrainingSpec:
    changes = {
        "optimizer": spec.optimizer.model_copy(update={"name": optimizer}),
        "model": spec.model.model_copy(update={"style": style}),
    }
    return spec.model_copy(update=changes)
