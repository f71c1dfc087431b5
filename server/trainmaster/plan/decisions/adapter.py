"""The sizes of a low-rank adapter and its base."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from trainmaster.plan.architecture import Architecture
from trainmaster.plan.frameworks import Framework
from trainmaster.plan.spec import AdapterSpec

# The parts of a block by the names of projections in the usual models.
_QUERY = ("q_proj", "query")
_KEY = ("k_proj", "key")
_VALUE = ("v_proj", "value")
_FUSED_QKV = ("c_attn", "query_key_value", "qkv_proj", "Wqkv")
_OUTPUT = ("o_proj", "projection", "c_proj", "dense", "out_proj")
_UP = ("up_proj", "mlp", "c_fc", "dense_h_to_4h", "fc1")
_GATE = ("gate_proj", "mlp")
_FUSED_GATE = ("gate_up_proj",)
_DOWN = ("down_proj", "mlp", "c_proj", "dense_4h_to_h", "fc2")
_FEED_FORWARD = (_UP, _GATE, _DOWN)
_ROUTER = ("gate", "mlp")
_HEAD = ("lm_head", "head", "embed_out")
# Names, how many there are, and their widths.
_Matrix = tuple[tuple[str, ...], int, int, int]


def adapter_parameters(adapter: AdapterSpec, model: Architecture, framework: Framework) -> int:
    """Parameters of the two thin matrices at each target, rank times their widths together.

    PEFT adapts experts as transformers has them, fused: gate and up projection are one matrix with
    twice the rank. All layers then means no shared experts, whose names are those of the others.
    """
    matrices = _targeted(adapter, model, framework)
    return adapter.r * sum(count * (into + out) for _, count, into, out in matrices)


def adapted_features(adapter: AdapterSpec, model: Architecture, framework: Framework) -> int:
    """Features of a token that go into adapters and come out of them; of experts those that it
    passes, and none where their adapters are merged."""
    merged = _FEED_FORWARD if model.experts is not None and not framework.has_own_adapters else ()
    matrices = _targeted(adapter, replace(model, experts=None), framework)
    return sum(count * (into + out) for names, count, into, out in matrices if names not in merged)


def uncounted_targets(adapter: AdapterSpec, model: Architecture, framework: Framework) -> list[str]:
    """The targets that are none of the matrices counted here."""
    counted = {name for matrix in _matrices(model, framework) for name in matrix[0]}
    named = () if adapter.targets == "auto" else adapter.targets
    return [target for target in named if target.rpartition(".")[2] not in counted]


def base_bytes(
    adapter: AdapterSpec,
    parameters: int,
    model: Architecture,
    framework: Framework,
    precision: str,
) -> float:
    """The bytes of the frozen base: whole in the training's precision, or its linear layers in 4
    bits and the rest in bf16.

    Of transformers' models bitsandbytes leaves out the output layer, and experts, which are no
    linear layers there.
    """
    if adapter.quantize is None:
        return parameters * (2.0 if precision == "bf16" else 4.0)
    whole = model.vocab_size * model.d_model
    if not framework.has_own_adapters:
        whole *= model.embeddings
        whole += 0 if model.experts is None else model.experts.parameters(model.d_model)
    whole = min(parameters, whole)
    return whole * 2.0 + (parameters - whole) * framework.nf4_bits / 8


def merged_bytes(
    adapter: AdapterSpec, model: Architecture, framework: Framework, precision: str
) -> float:
    """The bytes of experts' weights with their adapters added, which PEFT makes again in each layer
    and pass, and the backward pass needs."""
    if model.experts is None or framework.has_own_adapters or adapter.targets != "auto":
        return 0.0
    of_weight = 2.0 if adapter.quantize is not None or precision == "bf16" else 4.0
    return model.experts.parameters(model.d_model) * of_weight


def _targeted(adapter: AdapterSpec, model: Architecture, framework: Framework) -> Iterator[_Matrix]:
    targets: Sequence[str] | None = adapter.targets
    if adapter.targets == "auto":
        targets = framework.usual_adapter_targets
    for matrix in _matrices(model, framework):
        is_usual = targets is None and matrix[0] is not _HEAD
        if is_usual or any(target.rpartition(".")[2] in matrix[0] for target in targets or ()):
            yield matrix


def _matrices(model: Architecture, framework: Framework) -> list[_Matrix]:
    width, queries, layers = model.d_model, model.query_width, model.n_layer
    fuses = model.layer.fused and not framework.has_own_adapters
    attention: list[_Matrix] = [
        (_QUERY, layers, width, queries),
        (_KEY, layers, width, model.kv_width),
        (_VALUE, layers, width, model.kv_width),
        (_OUTPUT, layers, queries, width),
        (_HEAD, 1, width, model.vocab_size),
    ]
    if fuses:
        attention[:3] = [(_FUSED_QKV, layers, width, queries + 2 * model.kv_width)]
    experts, count, hidden = model.experts, layers, model.d_ff
    if experts is not None:
        count, hidden = experts.layers * experts.number, experts.width
        attention.append((_ROUTER, experts.layers, width, experts.number))
        if not framework.has_own_adapters:
            fused = (*_UP, *_GATE)
            return [
                *attention,
                (fused, 2 * count, width, 2 * hidden),
                (_DOWN, count, hidden, width),
            ]
    if fuses and model.is_gated:
        both = (_FUSED_GATE, count, width, 2 * hidden)
        return [*attention, both, (_DOWN, count, hidden, width)]
    gate = [(_GATE, count, width, hidden)] if model.is_gated else []
    return [*attention, (_UP, count, width, hidden), *gate, (_DOWN, count, hidden, width)]
