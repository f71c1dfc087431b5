"""The style and the optimizer of a new model, which belong together, where a spec names neither."""

from __future__ import annotations

from trainmaster.plan.architecture import Architecture, block_matrix_parameters
from trainmaster.plan.decisions.tokenizer import BYTE, chosen_tokenizer
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
_NGRAM_SHARE = 4  # of the parameters of the blocks, at most
_NGRAM_REASON = "Of 2 to 4 bytes: learned faster. 0 keeps final/ loadable by transformers."


def is_modern_by_muon(spec: TrainingSpec) -> bool:
    """Whether the two are trained together; `spec` names them."""
    return (spec.model.style, spec.optimizer.name) == (_STYLE, _OPTIMIZER)


def choose_ngram_rows(spec: TrainingSpec, model: Architecture, ledger: Ledger) -> int:
    """Rows of the table of n-gram embeddings: a power of two, or 0."""
    rows = spec.model.ngram_embeddings
    if rows != "auto":
        return rows
    if not is_modern_by_muon(spec) or chosen_tokenizer(spec) != BYTE:
        return 0
    most = _NGRAM_SHARE * block_matrix_parameters(model) // model.d_model
    rows = 1 << most.bit_length() - 1
    ledger.decide("model.ngram_embeddings", rows, _NGRAM_REASON, _SOURCE)
    return rows


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
