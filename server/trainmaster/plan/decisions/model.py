"""Decides the model's open sizes."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from trainer_runtime.core.config import ConfigDocument, ModelConfig
from trainer_runtime.core.config.model import GATED, STYLES
from trainer_runtime.core.config.objectives import POSITIONS_FROM_PADDING, USUAL_PADDING
from trainer_runtime.core.decoding import Fields
from trainer_runtime.core.protocol.command import command
from trainmaster.errors.errors import PlanError
from trainmaster.plan.architecture import (
    Architecture,
    Decoder,
    Style,
    parameters,
)
from trainmaster.plan.architecture_counts import counted, is_gated, layer_of
from trainmaster.plan.decisions.objective import read_by_objective
from trainmaster.plan.decisions.style_and_optimizer import choose_ngram_rows
from trainmaster.plan.facts import ModelFacts
from trainmaster.plan.frameworks import framework_of
from trainmaster.plan.named_models import find_model
from trainmaster.plan.result import Ledger
from trainmaster.plan.spec import ModelSpec, TrainingSpec
from trainmaster.plan.transformers_architectures import (
    KEY_HEADS,
    POSITIONS,
    field_named,
    whole_config,
)

# 256 byte values and the end of a text.
BYTE_VOCABULARY = 257
_VOCABULARY_MULTIPLE = 64
_WIDE = 2048
_SIZES = ("n_layer", "n_head", "n_kv_head", "d_model", "d_ff", "vocab_size")


@dataclass(frozen=True, slots=True)
class Network:
    """What is trained. `architecture` and `parameters` are None where existing weights, or a
    framework's own preset, don't describe them; `sizes` are the config's, None likewise."""

    architecture: Architecture | None
    parameters: int | None
    sizes: dict[str, Any]

    @property
    def parameters_by_size(self) -> int | None:
        """What rates and lengths go by: without n-gram embeddings, of which a token moves three."""
        if self.parameters is None or self.architecture is None:
            return self.parameters
        return self.parameters - self.architecture.ngram_parameters


def choose_network(
    spec: TrainingSpec, existing: ModelFacts | None, vocabulary: int | None, ledger: Ledger
) -> Network:
    """The network with every size that can be known; `vocabulary` is the tokenizer's.

    Raises:
        PlanError: VOCABULARY_TOO_SMALL, MISSING_FIELD where the vocabulary is unknown, or
            INVALID_VALUE for sequences that are longer than the model's positions.
    """
    if spec.continues:
        return _existing(spec, existing, vocabulary, ledger)
    if spec.model.arch is not None:
        return _of_transformers(spec, spec.model.arch, vocabulary, ledger)
    if spec.model.preset is not None:
        return _of_litgpt(spec.model.preset, spec.data.seq_len)
    architecture = choose_architecture(spec, vocabulary, ledger)
    return Network(architecture, parameters(architecture), _sizes_of(architecture))


def choose_architecture(spec: TrainingSpec, vocabulary: int | None, ledger: Ledger) -> Architecture:
    """All sizes of a new model.

    Raises:
        PlanError: VOCABULARY_TOO_SMALL, or MISSING_FIELD where the vocabulary is unknown.
    """
    model = spec.model
    style = _style(spec, ledger)
    # The spec's own checks require these.
    n_layer, n_head, d_model = (
        int(size or 0) for size in (model.n_layer, model.n_head, model.d_model)
    )
    n_kv_head = model.n_kv_head
    if n_kv_head is None:
        n_kv_head = n_head
        ledger.decide("model.n_kv_head", n_kv_head, "As many as n_head: multi-head attention.")
    d_ff = model.d_ff
    if d_ff is None:
        d_ff, reason = _feed_forward(d_model, model.activation or STYLES[style].activation)
        ledger.decide("model.d_ff", d_ff, reason)
    architecture = Architecture(
        style=style,
        n_layer=n_layer,
        n_head=n_head,
        n_kv_head=n_kv_head,
        d_model=d_model,
        d_ff=d_ff,
        vocab_size=_vocabulary(model, vocabulary, ledger),
        seq_len=spec.data.seq_len,
        biases=style == "gpt2" and framework_of(spec).has_biases,
        rotary=framework_of(spec).has_rotary_gpt2,
        norm=model.norm or STYLES[style].norm,
        activation=model.activation or STYLES[style].activation,
        window=model.window,
        value_embeddings=model.value_embeddings,
    )
    return replace(architecture, ngram_embeddings=choose_ngram_rows(spec, architecture, ledger))


def warn_of_own_names(spec: TrainingSpec, config: ConfigDocument, ledger: Ledger) -> None:
    """Warn where the final model is none of transformers'; `config` is the resolved one."""
    model = ModelConfig.of(Fields(config["model"], "model"))
    if spec.model.ngram_embeddings == "auto":  # the reason of that decision says so
        model = replace(model, ngram_embeddings=0)
    if framework_of(spec).is_single_process and not model.is_exported:
        ledger.warn(
            "transformers has no model with these parts of `model`: final/ keeps the names of "
            f"train.py, which with {command('sample', 'RUN')} can write texts; hf and trl can't "
            "continue from it."
        )


def _of_litgpt(preset: str, seq_len: int) -> Network:
    """A model that LitGPT makes by its name, each with an output embedding of its own."""
    model = find_model(preset)
    measured = None
    if model is not None:
        words = {**model.in_words_of_transformers(), "vocab_size": model.vocab_size}
        measured = counted(model.arch, whole_config(model.arch, words), seq_len)
    if model is None or measured is None:
        return Network(None, None, {**_sizes_of(None), "style": None})
    shape, d_ff, count = measured
    count += model.vocab_size * model.d_model if model.tied else 0
    sizes = {**_sizes_of(shape), "d_ff": d_ff, "style": None}
    return Network(replace(shape, tied=False), count, sizes)


def _of_transformers(
    spec: TrainingSpec, arch: str, vocabulary: int | None, ledger: Ledger
) -> Network:
    """A model of one of transformers' architectures, whose configuration is completed."""
    own, whole = spec.model.config, whole_config(arch, spec.model.config)
    keys, positions = field_named(KEY_HEADS, whole), field_named(POSITIONS, whole)
    if keys is not None and own.get(keys) is None:
        reason = "As many as heads: multi-head attention."
        ledger.decide(f"model.config.{keys}", whole[keys], reason)
    whole["vocab_size"] = _vocabulary(
        ModelSpec(vocab_size=own.get("vocab_size")), vocabulary, ledger, "model.config.vocab_size"
    )
    seq_len, unused = spec.data.seq_len, _unused_positions(arch)
    least = seq_len + unused
    behind = f", and {unused} that padding has" if unused else ""
    if positions is not None and positions not in own:
        whole[positions] = least
        ledger.decide(f"model.config.{positions}", least, f"As many as data.seq_len{behind}.")
    elif positions is not None and whole[positions] < least:
        raise PlanError(
            "INVALID_VALUE",
            f"`model.config.{positions}` is {whole[positions]}, less than `data.seq_len` "
            f"{seq_len}{behind}.",
            f"Set it to at least {least}, or leave it out.",
            field=f"model.config.{positions}",
        )
    fields = {*own, "vocab_size", *filter(None, (keys, positions))}
    config = {name: value for name, value in whole.items() if name in fields}
    measured = counted(arch, whole, seq_len)
    if measured is None:
        ledger.warn(
            f"How many parameters {arch} has by this configuration is not known here: neither "
            "memory nor time is planned. The host counts them when it begins."
        )
        return Network(None, None, {**_sizes_of(None), "arch": arch, "config": config})
    model, d_ff, count = measured
    sizes = {**_sizes_of(model), "d_ff": d_ff, "style": None, "arch": arch, "config": config}
    return Network(read_by_objective(spec, model), count, sizes)


def _unused_positions(model_type: str) -> int:
    """Positions that no token of a sequence has."""
    return USUAL_PADDING + 1 if model_type in POSITIONS_FROM_PADDING else 0


def _existing(
    spec: TrainingSpec, facts: ModelFacts | None, vocabulary: int | None, ledger: Ledger
) -> Network:
    if facts is None:
        return Network(None, None, _sizes_of(None))
    _refuse_long_sequences(spec, facts)
    facts = _extended(spec, facts, vocabulary, ledger)
    sizes = {name: getattr(facts, name) for name in _SIZES}
    sizes["n_kv_head"] = sizes["n_kv_head"] or sizes["n_head"]
    all_sizes = {**_sizes_of(None), **sizes}
    if None in sizes.values():
        return Network(None, facts.parameters, all_sizes)
    gated = is_gated(facts.model_type) if facts.gated is None else facts.gated
    architecture = Architecture(
        style="llama" if gated else "gpt2",
        seq_len=spec.data.seq_len,
        tied=facts.tied,
        biases=not gated,
        rotary=facts.model_type != "gpt2",
        d_head=facts.d_head,
        experts=facts.experts,
        layer=layer_of(facts.model_type),
        decoder=None if facts.decoder_layers is None else Decoder(facts.decoder_layers),
        **sizes,
    )
    architecture = read_by_objective(spec, architecture)
    return Network(architecture, facts.parameters or parameters(architecture), all_sizes)


def _refuse_long_sequences(spec: TrainingSpec, facts: ModelFacts) -> None:
    known, scaling, seq_len = facts.max_positions, spec.model.rope_scaling, spec.data.seq_len
    if known is None or facts.decoder_layers is not None:  # T5's positions are relative
        return
    known -= _unused_positions(facts.model_type)
    if seq_len <= known * (1 if scaling is None else scaling.factor):
        return
    factor = -(-seq_len // known)
    raise PlanError(
        "INVALID_VALUE",
        f"`data.seq_len` is {seq_len}, but the model knows {known:,} positions"
        + (
            "." if scaling is None else f", {scaling.factor:g} times as many by model.rope_scaling."
        ),
        f"Set data.seq_len to at most {known}, or model.rope_scaling={{factor: {factor}}} for a "
        "model with rotary positions (hf, trl).",
        field="data.seq_len",
    )


def _extended(
    spec: TrainingSpec, facts: ModelFacts, vocabulary: int | None, ledger: Ledger
) -> ModelFacts:
    """The facts with as many rows of the embeddings as the tokenizer has tokens."""
    rows = facts.vocab_size
    if not spec.model.extend_vocab or vocabulary is None or rows is None or vocabulary <= rows:
        return facts
    padded = _padded(vocabulary, _VOCABULARY_MULTIPLE)
    reason = f"{rows:,} rows of the model, extended to {vocabulary:,} tokens, padded to a multiple"
    ledger.decide("model.vocab_size", padded, f"{reason} of 64.")
    added = (padded - rows) * (facts.d_model or 0) * (1 if facts.tied else 2)
    count = None if facts.parameters is None else facts.parameters + added
    return facts.model_copy(update={"vocab_size": padded, "parameters": count})


def _sizes_of(architecture: Architecture | None) -> dict[str, Any]:
    return {name: getattr(architecture, name, None) for name in (*_SIZES, "style")}


def _style(spec: TrainingSpec, ledger: Ledger) -> Style:
    if spec.model.style != "auto":
        return spec.model.style
    style, reason = framework_of(spec).usual_style
    if reason is not None:
        ledger.decide("model.style", style, reason)
    return style


def _feed_forward(d_model: int, activation: str) -> tuple[int, str]:
    if activation not in GATED:
        return 4 * d_model, "4 times d_model, as in GPT-2."
    multiple = 64 if d_model < _WIDE else 256
    width = _padded(-(-8 * d_model // 3), multiple)
    return width, f"8/3 of d_model, rounded up to a multiple of {multiple}, as in Llama."


def _vocabulary(
    model: ModelSpec, tokens: int | None, ledger: Ledger, field: str = "model.vocab_size"
) -> int:
    if model.vocab_size is not None:
        if tokens is not None and model.vocab_size < tokens:
            raise PlanError(
                "VOCABULARY_TOO_SMALL",
                f"`{field}` is {model.vocab_size}, but {_tokenizer(tokens)} has {tokens} tokens.",
                f"Set {field} to at least {tokens}, or leave it out.",
                field=field,
            )
        return model.vocab_size
    if tokens is None:
        raise PlanError(
            "MISSING_FIELD",
            f"`{field}` is missing: how many tokens the tokenizer has is not known.",
            "Give it, as many as the tokenizer has, or more.",
            field=field,
        )
    padded = _padded(tokens, _VOCABULARY_MULTIPLE)
    reason = f"{tokens} tokens of {_tokenizer(tokens)}, padded to a multiple of 64."
    ledger.decide(field, padded, reason)
    return padded


def _tokenizer(tokens: int) -> str:
    return "the byte tokenizer" if tokens == BYTE_VOCABULARY else "the tokenizer"


def _padded(number: int, multiple: int) -> int:
    return -(-number // multiple) * multiple
