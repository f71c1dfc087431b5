"""Facts of weights that are not at hand, by the shape that the spec gives them."""

from __future__ import annotations

from typing import Any

from trainer_runtime.core.config.objectives import CAUSAL
from trainmaster.errors.errors import PlanError
from trainmaster.plan.architecture import parameters
from trainmaster.plan.architecture_counts import counted
from trainmaster.plan.decisions.model import choose_architecture
from trainmaster.plan.facts import ModelFacts
from trainmaster.plan.named_models import NamedModel, find_model, nearest_models
from trainmaster.plan.result import Ledger
from trainmaster.plan.spec import TrainingSpec
from trainmaster.plan.transformers_architectures import (
    POSITIONS,
    field_named,
    objective_of,
    whole_config,
)

# Most are published in bf16.
_BYTES_PER_PARAMETER = 2


def shape_facts(spec: TrainingSpec) -> ModelFacts:
    """Of the weights that a spec tunes and does not name: by a preset, an architecture or sizes.

    Raises:
        PlanError: MISSING_FIELD, the vocabulary is not known.
    """
    preset = spec.model.preset
    if preset is None:
        what = "an adapter is given for a model of sizes"
        sentence = f"No weights are named: {what}, whose weights would be random."
        return _sizes(spec).model_copy(update={"missing": sentence})
    model = find_model(preset)
    hub = f", such as model.hub: {model.hub[0]}" if model is not None and model.hub else ""
    sentence = f"`model.preset` {preset} is a shape, and {spec.framework} tunes weights{hub}."
    shape = ModelFacts(has_tokenizer=True) if model is None else facts_of(model)
    return shape.model_copy(update={"missing": sentence})


def named_weights(spec: TrainingSpec) -> ModelFacts:
    """Of the hub's weights that a spec names, by the table of published models.

    Raises:
        PlanError: MODEL_NOT_FOUND, with the nearest names.
    """
    hub = str(spec.model.hub)
    model = find_model(hub)
    if model is None:
        close = ", ".join(nearest_models(hub))
        raise PlanError(
            "MODEL_NOT_FOUND",
            f"`model.hub` is {hub!r}, whose sizes are not known here, and a plan for a machine "
            "that is not there fetches nothing." + (f" Did you mean {close}?" if close else ""),
            "Give a name that docs/models.md lists, or model.path a folder with its config.json.",
            field="model.hub",
        )
    size = _BYTES_PER_PARAMETER * model.parameters
    return facts_of(model).model_copy(
        update={
            "hub": hub,
            "sent_as": model.name,
            "files": (("model.safetensors", size),),
            "weights_bytes": size,
        }
    )


def facts_of(model: NamedModel) -> ModelFacts:
    """What the weights' own config.json would say."""
    return facts_of_config(
        model.arch,
        {
            **model.in_words_of_transformers(),
            "vocab_size": model.vocab_size,
            "max_position_embeddings": model.context,
        },
    )


def facts_of_config(arch: str, config: dict[str, Any]) -> ModelFacts:
    """Of weights with this configuration in transformers' words; sizes are None where the
    architecture is not counted here."""
    whole = whole_config(arch, config)
    measured, positions = counted(arch, whole, 1), field_named(POSITIONS, whole)
    longest = None if positions is None else whole[positions]
    if measured is None:
        return ModelFacts(model_type=arch, max_positions=longest, has_tokenizer=True)
    shape, _, count = measured
    return ModelFacts(
        model_type=arch,
        parameters=count,
        n_layer=shape.n_layer,
        n_head=shape.n_head,
        n_kv_head=shape.n_kv_head,
        d_model=shape.d_model,
        d_ff=shape.d_ff,
        d_head=shape.d_head,
        experts=shape.experts,
        gated=None if objective_of(arch) == CAUSAL else shape.is_gated,
        decoder_layers=None if shape.decoder is None else shape.decoder.layers,
        vocab_size=shape.vocab_size,
        tied=shape.tied,
        max_positions=longest,
        has_tokenizer=True,
    )


def _sizes(spec: TrainingSpec) -> ModelFacts:
    if spec.model.arch is not None:
        return facts_of_config(spec.model.arch, spec.model.config)
    shape = choose_architecture(spec, None, Ledger())
    return ModelFacts(
        model_type=shape.style,
        parameters=parameters(shape),
        n_layer=shape.n_layer,
        n_head=shape.n_head,
        n_kv_head=shape.n_kv_head,
        d_model=shape.d_model,
        d_ff=shape.d_ff,
        vocab_size=shape.vocab_size,
        tied=shape.style == "gpt2",
        has_tokenizer=True,
    )
