"""Puts the sizes of a published model in the place of its name."""

from __future__ import annotations

from typing import Any

from trainer_runtime.core.config.model import ROPE_BASE
from trainmaster.plan.frameworks import framework_of
from trainmaster.plan.named_models import NamedModel, find_model
from trainmaster.plan.result import Ledger
from trainmaster.plan.spec import TrainingSpec


def with_sizes(spec: TrainingSpec, vocabulary: int | None, ledger: Ledger) -> TrainingSpec:
    """The spec with the sizes that its preset stands for, as its framework takes them: our own
    words, those of transformers, or LitGPT's name. `vocabulary` is the tokenizer's.

    A preset whose weights are tuned stays as it is.
    """
    name = spec.model.preset
    model = None if name is None else find_model(name)
    if model is None or spec.lacks_weights:
        return spec
    framework = framework_of(spec)
    rows = _rows(spec, model, vocabulary, ledger)
    if model.is_gpt2 or framework.is_single_process:
        values = _in_our_words(model, rows)
        _explain(values, model, ledger)
    elif framework.own_names:
        values = {"preset": model.litgpt}
        ledger.decide("model.preset", model.litgpt, f"LitGPT's name of {model.name}.", model.source)
    else:
        config = model.in_words_of_transformers()
        values = {"preset": None, "arch": model.arch, "config": config, "vocab_size": None}
        _explain({"arch": model.arch, **config}, model, ledger)
        if rows is not None:
            config["vocab_size"] = rows
    if "arch" in values or "style" in values:
        own_base = None if model.rope_base == ROPE_BASE else model.rope_base
        values["rope_base"] = spec.model.rope_base or own_base
    return spec.model_copy(update={"model": spec.model.model_copy(update=values)})


def _in_our_words(model: NamedModel, rows: int | None) -> dict[str, Any]:
    sizes: dict[str, Any] = {
        "n_layer": model.n_layer,
        "n_head": model.n_head,
        "d_model": model.d_model,
    }
    if not model.is_gpt2:
        sizes |= {"style": "llama", "n_kv_head": model.n_kv_head, "d_ff": model.d_ff}
    return {"preset": None, **sizes, "vocab_size": rows}


def _explain(values: dict[str, Any], model: NamedModel, ledger: Ledger) -> None:
    shown = {name: value for name, value in values.items() if name not in ("preset", "vocab_size")}
    where = "model.config." if "arch" in shown else "model."
    for name, value in shown.items():
        field = "model.arch" if name == "arch" else f"{where}{name}"
        ledger.decide(field, value, f"Preset {model.name}.", model.source)


def _rows(
    spec: TrainingSpec, model: NamedModel, vocabulary: int | None, ledger: Ledger
) -> int | None:
    """The rows of the embedding; None for as many as a larger tokenizer has."""
    if spec.model.vocab_size is not None:
        return spec.model.vocab_size
    if vocabulary is not None and vocabulary > model.vocab_size:
        return None
    used = "" if vocabulary is None else f"; the tokenizer uses the first {vocabulary:,}"
    ledger.decide("model.vocab_size", model.vocab_size, f"Preset {model.name}{used}.")
    return model.vocab_size
