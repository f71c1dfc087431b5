"""The sizes of a low-rank adapter and its base."""

from __future__ import annotations

from collections.abc import Sequence

from trainmaster.plan.architecture import Architecture
from trainmaster.plan.frameworks import Framework
from trainmaster.plan.spec import AdapterSpec

# Dettmers et al. 2023 (QLoRA, arXiv 2305.14314): 4 bits and 0.127 of constants, quantized twice.
_NF4_BYTES = 4.127 / 8
# The parts of a block by the names of projections in the usual models.
_QUERY = ("q_proj", "query", "c_attn", "query_key_value")
_KEY = ("k_proj", "key", "c_attn", "query_key_value")
_VALUE = ("v_proj", "value", "c_attn", "query_key_value")
_OUTPUT = ("o_proj", "projection", "c_proj", "dense")
_UP = ("up_proj", "mlp", "c_fc", "dense_h_to_4h")
_GATE = ("gate_proj", "mlp")
_DOWN = ("down_proj", "mlp", "c_proj", "dense_4h_to_h")


def adapter_parameters(adapter: AdapterSpec, model: Architecture, framework: Framework) -> int:
    """Parameters of the two thin matrices at each target, rank times their widths together."""
    targets: Sequence[str] | None = adapter.targets
    if adapter.targets == "auto":
        targets = framework.usual_adapter_targets
    widths = sum(
        into + out
        for names, into, out in _matrices(model)
        if targets is None or any(target.rpartition(".")[2] in names for target in targets)
    )
    return adapter.r * widths * model.n_layer


def base_bytes(adapter: AdapterSpec, parameters: int, model: Architecture, precision: str) -> float:
    """The bytes of the frozen base: whole in the training's precision, or in 4 bits with
    embeddings in bf16."""
    if adapter.quantize is None:
        return parameters * (2.0 if precision == "bf16" else 4.0)
    embeddings = min(parameters, model.vocab_size * model.d_model)
    return embeddings * 2.0 + (parameters - embeddings) * _NF4_BYTES


def _matrices(model: Architecture) -> list[tuple[tuple[str, ...], int, int]]:
    width, hidden = model.d_model, model.d_ff
    gate = [(_GATE, width, hidden)] if model.style == "llama" else []
    return [
        (_QUERY, width, width),
        (_KEY, width, model.kv_width),
        (_VALUE, width, model.kv_width),
        (_OUTPUT, width, width),
        (_UP, width, hidden),
        *gate,
        (_DOWN, hidden, width),
    ]
