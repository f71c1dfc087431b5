"""Small configurations of transformers' causal architectures, in each one's own words."""

from __future__ import annotations

from typing import Any

_LLAMA = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 48,
}
_GROUPED = {**_LLAMA, "num_key_value_heads": 2}
_NEOX = {**_LLAMA, "intermediate_size": 64}
SMALL: dict[str, dict[str, Any]] = {
    "llama": _GROUPED,
    "mistral": {**_GROUPED, "sliding_window": 8},
    "mixtral": {**_GROUPED, "num_local_experts": 4, "num_experts_per_tok": 2},
    "qwen3_moe": {
        **_GROUPED,
        "head_dim": 16,
        "moe_intermediate_size": 24,
        "num_experts": 4,
        "num_experts_per_tok": 2,
    },
    "olmoe": {**_GROUPED, "num_experts": 4, "num_experts_per_tok": 2},
    "qwen2": _GROUPED,
    "qwen3": {**_GROUPED, "head_dim": 16},
    "gemma3_text": {**_GROUPED, "head_dim": 16, "sliding_window": 8},
    "phi3": _GROUPED,
    "smollm3": _GROUPED,
    "gemma2": {**_GROUPED, "head_dim": 16, "sliding_window": 8},
    "olmo2": _LLAMA,
    "nanochat": _GROUPED,
    "falcon": {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4},
    "bloom": {"hidden_size": 32, "n_layer": 2, "n_head": 4},
    "gpt_neox": _NEOX,
    "phi": _NEOX,
    "starcoder2": _NEOX,
    "gpt2": {"n_embd": 32, "n_layer": 2, "n_head": 4},
}
_T5 = {"d_model": 32, "d_kv": 8, "num_heads": 4, "num_layers": 2, "d_ff": 48}
# Those of other objectives.
SMALL_BY_OBJECTIVE: dict[str, dict[str, Any]] = {
    "bert": _LLAMA,
    "deberta-v2": _LLAMA,
    "electra": {**_LLAMA, "embedding_size": 16},
    "ernie": _LLAMA,
    "modernbert": _LLAMA,
    "roberta": _LLAMA,
    "xlm-roberta": _LLAMA,
    "mt5": _T5,
    "t5": {**_T5, "num_decoder_layers": 1},
    "umt5": _T5,
}
