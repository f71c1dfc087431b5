"""Which architectures a method can train, by a model's config.json; any other is refused.

A wrong one may load and train all the same: transformers builds a language model of BERT whose
tokens see the ones that follow them, and whose loss then falls without anything being learnt.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from trainer_runtime.core.config.objectives import CAUSAL, OBJECTIVES
from trainmaster.errors.errors import PlanError
from trainmaster.plan.facts import ModelFacts
from trainmaster.plan.frameworks import method_of
from trainmaster.plan.spec import TrainingSpec

# What a model is, and the remedy; None where it can be trained.
Reason = tuple[str, str] | None
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
# Of other pre-trainings the head is another one.
_MASKED_NAME = re.compile(r"\w+ForMaskedLM|BertForPreTraining")
_NO_CLASS = (
    "its config.json names no architecture",
    'Save it by `save_pretrained`, or add the class to config.json: `"architectures": '
    '["LlamaForCausalLM"]`.',
)


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
    name = next(iter(model.architectures), None)
    why = _NO_CLASS if name is None else _REASONS[spec.objective](spec, model, name)
    if why is None:
        return
    problem, remedy = why
    what = method_of(spec) if spec.objective == CAUSAL else f"`objective` {spec.objective}"
    field = "model.path" if spec.model.path else "model.hub"
    raise PlanError(
        "MODEL_UNUSABLE",
        f"`{field}` is {model.hub or model.path!r}: {problem}, which {what} can't train.",
        remedy,
        field=field,
    )


def _no_causal(spec: TrainingSpec, model: ModelFacts, name: str) -> Reason:
    is_reward = method_of(spec) == "reward"
    other = "Give a decoder, whose config.json names an architecture ending in ForCausalLM."
    if method_of(spec) == "pretrain":
        others = {way: why for way, why in _REASONS.items() if way != CAUSAL}
        fitting = [way for way, why in others.items() if why(spec, model, name) is None]
        other = "".join(f"Set objective to {way} (hf). Or: {other}" for way in fitting) or other
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


def _no_masked(_: TrainingSpec, model: ModelFacts, name: str) -> Reason:
    if _MASKED_NAME.fullmatch(name) and not (model.is_encoder_decoder or model.is_decoder):
        return None
    return (
        f"it is {name}, not an encoder that fills masks",
        "Set objective to causal for a decoder; or give an encoder, whose config.json names an "
        "architecture ending in ForMaskedLM.",
    )


def _no_denoising(_: TrainingSpec, model: ModelFacts, name: str) -> Reason:
    families = OBJECTIVES["denoising"].architectures
    if model.is_encoder_decoder and model.model_type in families:
        return None
    return (
        f"it is {name}, not an encoder-decoder with sentinels",
        f"Set objective to causal for a decoder; or give a model of {', '.join(families)}.",
    )


_REASONS: Mapping[str, Callable[[TrainingSpec, ModelFacts, str], Reason]] = {
    "causal": _no_causal,
    "masked": _no_masked,
    "denoising": _no_denoising,
}
