"""Which architectures a method can train, by a model's config.json; any other is refused.

A wrong one may load and train all the same: transformers builds a language model of BERT whose
tokens see the ones that follow them, and whose loss then falls without anything being learnt.
"""

from __future__ import annotations

import re

from trainmaster.errors.errors import PlanError
from trainmaster.plan.facts import ModelFacts
from trainmaster.plan.frameworks import method_of
from trainmaster.plan.spec import TrainingSpec

# What transformers calls a model whose head predicts the next token; XLM's and T5's
# `WithLMHeadModel` fill masks or translate.
_CAUSAL_NAME = re.compile(r"\w+(?:ForCausalLM|(?<!With)LMHeadModel)")
_CAUSAL_BY_ANOTHER_NAME = frozenset(
    {
        "BertGenerationDecoder",
        "Gemma3ForConditionalGeneration",
        "Gemma3nForConditionalGeneration",
        "ReformerModelWithLMHead",
    }
)
# `model_type` of families that attend both ways unless `is_decoder` is set (transformers 5.3).
_ENCODERS = re.compile(
    r"bert|bert-generation|big_bird|camembert|data2vec-text|electra|ernie|megatron-bert|reformer|"
    r"rembert|roberta|roberta-prelayernorm|roc_bert|roformer|xlm-roberta|xlm-roberta-xl|xmod"
)
# Prompts and permutations attend both ways; Doge's mask keeps the largest values of a whole row.
_NEVER_CAUSAL = frozenset({"cpmant", "doge", "xlnet"})
# A reward model replaces the head, so that an encoder does as well as a decoder.
_REWARD_NAME = re.compile(r"\w+(?:ForSequenceClassification|ForMaskedLM|ForPreTraining)")


def is_encoder(model_type: str) -> bool:
    """Whether models of this `model_type` attend both ways, unless they are set otherwise."""
    return bool(_ENCODERS.fullmatch(model_type)) or model_type in _NEVER_CAUSAL


def refuse_untrainable(spec: TrainingSpec, model: ModelFacts) -> None:
    """Check that the spec's method can train the model's architecture.

    Models in LitGPT's layout are decoders, all of them. Facts of a plan that was made by a version
    that didn't read architectures pass.

    Raises:
        PlanError: MODEL_UNUSABLE.
    """
    if model.kind != "hf" or model.architectures is None:
        return
    why = _why_untrainable(model, is_reward=method_of(spec) == "reward")
    if why is None:
        return
    problem, remedy = why
    field = "model.path" if spec.model.path else "model.hub"
    raise PlanError(
        "MODEL_UNUSABLE",
        f"`{field}` is {model.hub or model.path!r}: {problem}, which {method_of(spec)} can't "
        "train.",
        remedy,
        field=field,
    )


def _why_untrainable(model: ModelFacts, *, is_reward: bool) -> tuple[str, str] | None:
    """What the model is, and the remedy; None where it can be trained."""
    name = next(iter(model.architectures or ()), None)
    other = "Give a decoder, whose config.json names an architecture ending in ForCausalLM."
    if name is None:
        return (
            "its config.json names no architecture",
            'Save it by `save_pretrained`, or add the class to config.json: `"architectures": '
            '["LlamaForCausalLM"]`.',
        )
    if model.is_encoder_decoder:
        return f"it is {name}, an encoder with a decoder", other
    is_causal = bool(_CAUSAL_NAME.fullmatch(name)) or name in _CAUSAL_BY_ANOTHER_NAME
    if is_reward:
        return None if is_causal or _REWARD_NAME.fullmatch(name) else (f"it is {name}", other)
    if not is_causal or model.model_type in _NEVER_CAUSAL:
        return f"it is {name}, not a causal language model", other
    if _ENCODERS.fullmatch(model.model_type) and not model.is_decoder:
        return (
            f"it is {name} without `is_decoder` in config.json, so each token sees those that "
            "follow it",
            f"{other} Weights that were trained as a decoder take `is_decoder: true` there.",
        )
    return None
