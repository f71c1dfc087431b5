"""Which architectures a method trains: as transformers itself shows, and others are refused."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from support.plan.framework_plans import BILLION, planned, refusal
from support.session.tiers import at_length

from trainmaster.plan import CorpusFacts, HostFacts, ModelFacts
from trainmaster.runs.planning.hf_config import architecture_of_hf

T5 = {"architectures": ["T5ForConditionalGeneration"], "is_encoder_decoder": True}
SIZES = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 64,
    "vocab_size": 99,
}
# By `model_type`, with what else its config takes.
FAMILIES: dict[str, dict[str, Any]] = {
    "llama": {"num_key_value_heads": 2},
    "mistral": {"num_key_value_heads": 2},
    "qwen2": {"num_key_value_heads": 2},
    "gpt2": {},
    "gpt_neox": {},
    "bert": {},
    "roberta": {},
    "electra": {"embedding_size": 32},
    "camembert": {},
    "xlm-roberta": {},
    "rembert": {"input_embedding_size": 32, "output_embedding_size": 32},
    "roformer": {"embedding_size": 32},
    "xlnet": {"d_model": 32, "n_layer": 2, "n_head": 4, "d_inner": 64},
}
_SHORTLY = ("llama", "bert", "xlnet")
_OTHERS = [family for family in FAMILIES if family not in _SHORTLY]


def model_of(model_type: str, config: Mapping[str, Any]) -> ModelFacts:
    update = {"model_type": model_type, **architecture_of_hf(config)}
    return BILLION.model_copy(update=update)


@pytest.mark.parametrize(
    ("model_type", "config", "said"),
    [
        ("bert", {"architectures": ["BertForMaskedLM"]}, "BertForMaskedLM, not a causal"),
        ("bert", {"architectures": ["BertLMHeadModel"]}, "without `is_decoder`"),
        ("xlm-roberta", {"architectures": ["XLMRobertaForCausalLM"]}, "without `is_decoder`"),
        ("t5", T5, "an encoder with a decoder"),
        ("bart", {"architectures": ["BartForCausalLM"], "is_encoder_decoder": True}, "an encoder"),
        ("t5", {"architectures": ["T5WithLMHeadModel"]}, "not a causal"),
        ("llama", {"architectures": ["LlamaModel"]}, "LlamaModel, not a causal"),
        ("modernbert", {"architectures": ["ModernBertForMaskedLM"]}, "not a causal"),
        ("xlnet", {"architectures": ["XLNetLMHeadModel"]}, "not a causal"),
        ("llama", {}, "names no architecture"),
        ("llama", {"architectures": "LlamaForCausalLM"}, "names no architecture"),
    ],
)
def test_what_a_method_can_not_train_is_refused_by_name(
    gpu_host: HostFacts,
    rows: CorpusFacts,
    model_type: str,
    config: Mapping[str, Any],
    said: str,
) -> None:
    model = model_of(model_type, config)
    for framework, sets in (("hf", ()), ("trl", ("method=dpo",)), ("trl", ("method=sft",))):
        error = refusal(framework, gpu_host, rows, *sets, model=model)
        assert (error.code, error.field) == ("MODEL_UNUSABLE", "model.path")
        assert said in str(error) and error.fix


@pytest.mark.parametrize(
    ("model_type", "config"),
    [
        ("llama", {"architectures": ["LlamaForCausalLM"]}),
        ("gpt2", {"architectures": ["GPT2LMHeadModel"]}),
        ("of-tomorrow", {"architectures": ["TomorrowForCausalLM"]}),
        ("bert", {"architectures": ["BertLMHeadModel"], "is_decoder": True}),
        ("gemma3", {"architectures": ["Gemma3ForConditionalGeneration"]}),
    ],
)
def test_a_decoder_is_planned(
    gpu_host: HostFacts, rows: CorpusFacts, model_type: str, config: Mapping[str, Any]
) -> None:
    assert planned("hf", gpu_host, rows, model=model_of(model_type, config)).config["steps"] == 20


def test_a_reward_model_may_be_an_encoder(gpu_host: HostFacts, rows: CorpusFacts) -> None:
    bert = model_of("bert", {"architectures": ["BertForSequenceClassification"]})
    assert planned("trl", gpu_host, rows, "method=reward", model=bert).config["steps"] == 20
    error = refusal("trl", gpu_host, rows, "method=reward", model=model_of("t5", T5))
    assert "an encoder with a decoder" in str(error)


def test_a_plan_of_an_earlier_version_is_planned_again(
    gpu_host: HostFacts, rows: CorpusFacts
) -> None:
    before = BILLION.model_copy(update={"model_type": "bert"})
    assert before.architectures is None
    assert planned("hf", gpu_host, rows, model=before).config["steps"] == 20


@pytest.mark.parametrize("model_type", [*_SHORTLY, *at_length(*_OTHERS)])
def test_a_language_model_is_refused_where_a_later_token_changes_an_earlier_prediction(
    gpu_host: HostFacts, rows: CorpusFacts, model_type: str
) -> None:
    transformers = pytest.importorskip("transformers")
    config = transformers.AutoConfig.for_model(model_type, **{**SIZES, **FAMILIES[model_type]})
    model = transformers.AutoModelForCausalLM.from_config(config).eval()
    facts = model_of(model_type, {**config.to_dict(), "architectures": [type(model).__name__]})
    if _is_causal(model):
        assert planned("hf", gpu_host, rows, model=facts).config["steps"] == 20
    else:
        assert refusal("hf", gpu_host, rows, model=facts).code == "MODEL_UNUSABLE"


def _is_causal(model: Any) -> bool:
    import torch

    tokens = torch.arange(5, 21)[None]
    other = tokens.clone()
    other[0, -1] = 3
    with torch.no_grad():
        first, second = (model(input_ids=one).logits[:, :-1] for one in (tokens, other))
    return bool(torch.allclose(first, second, atol=1e-6))
