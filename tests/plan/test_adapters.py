"""Adapters and their frozen base beside what PEFT and bitsandbytes make of transformers' models."""

from __future__ import annotations

from typing import Any

import pytest

from trainmaster.plan.architecture import Architecture
from trainmaster.plan.architecture_counts import counted
from trainmaster.plan.decisions.adapter import adapter_parameters, base_bytes, merged_bytes
from trainmaster.plan.decisions.memory import Load, Sharing, memory
from trainmaster.plan.decisions.model import choose_network
from trainmaster.plan.decisions.shapes import facts_of_config
from trainmaster.plan.frameworks import FRAMEWORKS
from trainmaster.plan.result import Ledger
from trainmaster.plan.spec import AdapterSpec, load_spec
from trainmaster.plan.transformers_architectures import whole_config
from trainmaster.runs.planning.hf_config import sizes_of_litgpt

_SIZES: dict[str, Any] = {
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 128,
    "tie_word_embeddings": False,
}
_DENSE = {**_SIZES, "intermediate_size": 96}
_MODELS: dict[str, dict[str, Any]] = {
    "llama": _DENSE,
    "qwen3": {**_DENSE, "head_dim": 32},
    "mixtral": {**_DENSE, "num_local_experts": 4, "num_experts_per_tok": 2},
    "qwen3_moe": {
        **_SIZES,
        "moe_intermediate_size": 96,
        "head_dim": 32,
        "num_experts": 4,
        "num_experts_per_tok": 2,
    },
    "olmoe": {**_DENSE, "num_experts": 4, "num_experts_per_tok": 2},
}
_GPT2 = {"n_embd": 64, "n_inner": 96, "n_layer": 2, "n_head": 4, "vocab_size": 128}
_BLOOM = {"hidden_size": 64, "n_layer": 2, "n_head": 4, "vocab_size": 128}
_MULTI_HEAD = {name: size for name, size in _DENSE.items() if name != "num_key_value_heads"}
# Whose matrices are fused, or have names of their own, with some of these.
_OTHERS: dict[str, tuple[dict[str, Any], list[str]]] = {
    "gpt2": (_GPT2, ["c_attn"]),
    "gpt_neox": (_MULTI_HEAD, ["query_key_value", "dense_h_to_4h"]),
    "bloom": (_BLOOM, ["query_key_value", "dense"]),
    "falcon": ({**_MULTI_HEAD, "ffn_hidden_size": 96}, ["query_key_value"]),
    "phi": (_DENSE, ["fc1", "fc2", "dense"]),
    "phi3": ({**_DENSE, "pad_token_id": 0}, ["qkv_proj", "gate_up_proj"]),
    "starcoder2": (_DENSE, ["q_proj", "c_fc"]),
    "gemma2": ({**_DENSE, "head_dim": 32}, ["gate_proj"]),
    "gemma3_text": ({**_DENSE, "head_dim": 32}, ["q_proj", "v_proj"]),
    "olmo2": (_DENSE, ["down_proj"]),
}
_SPEC = load_spec(
    "name: a\nframework: trl\nmethod: sft\nmodel: {hub: a/b}\nadapter: {r: 4}\nsteps: 1\n"
    "data: {sources: [{path: /rows, format: jsonl}], seq_len: 128}\n"
)
_NF4 = 4.127 / 8


def shape(arch: str, config: dict[str, Any]) -> tuple[Architecture, int]:
    measured = counted(arch, whole_config(arch, config), 128)
    assert measured is not None
    return measured[0], measured[2]


def made(arch: str) -> Any:
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    with torch.device("meta"):
        return AutoModelForCausalLM.from_config(AutoConfig.for_model(arch, **_MODELS[arch]))


def test_an_adapter_of_mixtral_has_as_many_parameters_as_peft_gives_it() -> None:
    sizes = {"hidden_size": 4096, "num_hidden_layers": 32, "num_attention_heads": 32}
    experts = {"intermediate_size": 14336, "num_local_experts": 8, "num_experts_per_tok": 2}
    config = {**sizes, **experts, "num_key_value_heads": 8, "vocab_size": 32000}
    model, count = shape("mixtral", {**config, "tie_word_embeddings": False})
    assert count == 46_702_792_704
    # PEFT 0.21.2: 11,239,552 in each layer.
    assert adapter_parameters(AdapterSpec(r=16), model, FRAMEWORKS["trl"]) == 359_665_664
    # 84 GiB of experts in bf16, and the rest in 4 bits.
    size = base_bytes(AdapterSpec(quantize="nf4"), count, model, FRAMEWORKS["trl"], "bf16")
    assert size / 2**30 == pytest.approx(85.2, abs=0.3)
    # LitGPT has a linear layer for each expert.
    size = base_bytes(AdapterSpec(quantize="nf4"), count, model, FRAMEWORKS["litgpt"], "bf16")
    assert size / 2**30 == pytest.approx(24.7, abs=0.3)


@pytest.mark.engine
@pytest.mark.parametrize("arch", _MODELS)
@pytest.mark.parametrize("targets", ["auto", ["q_proj", "o_proj"]])
def test_peft_gives_an_adapter_as_many_parameters(arch: str, targets: Any) -> None:
    import torch
    from peft import LoraConfig, get_peft_model

    named = "all-linear" if targets == "auto" else targets
    config = LoraConfig(task_type="CAUSAL_LM", r=4, target_modules=named)
    with torch.device("meta"):
        adapted = get_peft_model(made(arch), config)
    model, _ = shape(arch, _MODELS[arch])
    ours = adapter_parameters(AdapterSpec(r=4, targets=targets), model, FRAMEWORKS["trl"])
    assert ours == adapted.get_nb_trainable_parameters()[0]


@pytest.mark.engine
@pytest.mark.parametrize("arch", _OTHERS)
@pytest.mark.parametrize("is_named", [False, True])
def test_peft_adapts_fused_matrices_as_one(arch: str, is_named: bool) -> None:
    import torch
    from peft import LoraConfig, get_peft_model
    from transformers import AutoConfig, AutoModelForCausalLM

    sizes, names = _OTHERS[arch]
    with torch.device("meta"):
        base = AutoModelForCausalLM.from_config(AutoConfig.for_model(arch, **sizes))
        named = names if is_named else "all-linear"
        adapted = get_peft_model(base, LoraConfig("CAUSAL_LM", r=4, target_modules=named))
    network = choose_network(_SPEC, facts_of_config(arch, sizes), None, Ledger())
    assert network.architecture is not None
    adapter = AdapterSpec(r=4, targets=names if is_named else "auto")
    ours = adapter_parameters(adapter, network.architecture, FRAMEWORKS["trl"])
    assert ours == adapted.get_nb_trainable_parameters()[0]


@pytest.mark.engine
@pytest.mark.parametrize("arch", _MODELS)
def test_bitsandbytes_quantizes_as_many_weights(arch: str) -> None:
    import torch
    from transformers import BitsAndBytesConfig
    from transformers.integrations.bitsandbytes import replace_with_bnb_linear
    from transformers.quantizers.base import get_keys_to_not_convert

    base = made(arch)
    count = base.num_parameters()
    config = BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_type="nf4")
    kept = get_keys_to_not_convert(base)
    replaced = replace_with_bnb_linear(base, kept, quantization_config=config)
    linear = [of for of in replaced.modules() if type(of).__name__ == "Linear4bit"]
    quantized = sum(of.in_features * of.out_features for of in linear)
    assert quantized and all(isinstance(of, torch.nn.Linear) for of in linear)
    model, _ = shape(arch, _MODELS[arch])
    size = base_bytes(AdapterSpec(quantize="nf4"), count, model, FRAMEWORKS["trl"], "bf16")
    # Norms are counted as if they were quantized.
    assert size == pytest.approx(quantized * _NF4 + 2 * (count - quantized), rel=0.01)


@pytest.mark.engine
def test_an_adapted_layer_keeps_its_experts_with_the_adapters_added() -> None:
    import torch
    from peft import LoraConfig, get_peft_model
    from transformers import AutoConfig, AutoModelForCausalLM

    def kept_bytes(layers: int) -> int:
        sizes = {**_MODELS["mixtral"], "num_hidden_layers": layers}
        base = AutoModelForCausalLM.from_config(AutoConfig.for_model("mixtral", **sizes))
        lora = LoraConfig(task_type="CAUSAL_LM", r=4, target_modules="all-linear")
        adapted = get_peft_model(base.bfloat16(), lora)
        weights = {weight.data_ptr() for weight in adapted.parameters()}
        kept: dict[int, torch.UntypedStorage] = {}

        def keep(tensor: torch.Tensor) -> torch.Tensor:
            storage = tensor.untyped_storage()
            if storage.data_ptr() not in weights:
                kept[storage.data_ptr()] = storage
            return tensor

        tokens = torch.zeros(1, 1, dtype=torch.long)
        saved = torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor)
        with saved, torch.autocast("cpu", torch.bfloat16):
            adapted(input_ids=tokens, labels=tokens, use_cache=False)
        return sum(storage.nbytes() for storage in kept.values())

    model, _ = shape("mixtral", _MODELS["mixtral"])
    of_layer = merged_bytes(AdapterSpec(), model, FRAMEWORKS["trl"], "bf16") / model.n_layer
    assert kept_bytes(2) - kept_bytes(1) == pytest.approx(of_layer, rel=0.35)
    assert merged_bytes(AdapterSpec(), model, FRAMEWORKS["litgpt"], "bf16") == 0
    assert merged_bytes(AdapterSpec(targets=["q_proj"]), model, FRAMEWORKS["trl"], "bf16") == 0
    load = Load(model, trained=0, merged_bytes=3 * 2**30)
    without = Load(model, trained=0)
    gib = [
        memory(load, 0, "bf16", "cuda", sharing).activations_gib
        - memory(without, 0, "bf16", "cuda", sharing).activations_gib
        for sharing in (Sharing(), Sharing(recompute=True))
    ]
    assert gib == pytest.approx([4.5, 3.0])  # of two layers


@pytest.mark.engine
@pytest.mark.parametrize("targets", ["auto", ["query", "key", "value", "projection", "mlp"]])
def test_litgpt_gives_an_adapter_of_experts_as_many_parameters(targets: Any) -> None:
    from dataclasses import asdict

    import torch
    from litgpt.lora import GPT, Config

    parts = ["query", "value"] if targets == "auto" else targets
    flags = {
        f"lora_{part}": part in parts for part in ("query", "key", "value", "projection", "mlp")
    }
    sizes = {"n_layer": 2, "n_embd": 64, "n_head": 4, "n_query_groups": 2, "head_size": 16}
    own = {**sizes, "intermediate_size": 96, "moe_intermediate_size": 96, "n_expert": 4}
    config = Config.from_name(
        "Mixtral-8x7B-v0.1", **own, padded_vocab_size=128, lora_r=4, lora_alpha=8, **flags
    )
    with torch.device("meta"):
        adapted = GPT(config)
    trained = sum(of.numel() for name, of in adapted.named_parameters() if "lora_" in name)
    facts = sizes_of_litgpt(asdict(config))
    model, _ = shape("mixtral", _MODELS["mixtral"])
    assert (facts["d_ff"], facts["experts"]) == (model.d_ff, model.experts)
    adapter = AdapterSpec(r=4, targets=targets)
    assert adapter_parameters(adapter, model, FRAMEWORKS["litgpt"]) == trained
