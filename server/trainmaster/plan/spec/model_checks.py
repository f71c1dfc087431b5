"""Checks the sizes and the origin of a spec's model against each other."""

from __future__ import annotations

from collections.abc import Iterator

from trainer_runtime.core.config.objectives import CAUSAL
from trainer_runtime.core.protocol.command import option
from trainmaster.errors.errors import Problem, wrong_value
from trainmaster.plan.fields.model import ModelSpec
from trainmaster.plan.named_models import find_model
from trainmaster.plan.spec.architecture_checks import architecture_problems


def model_problems(model: ModelSpec, objective: str = CAUSAL) -> Iterator[Problem]:
    """What is given beside what sets it, what is missing, and heads that don't fit."""
    sizes = {"n_layer": model.n_layer, "n_head": model.n_head, "d_model": model.d_model}
    origins = [
        name for name in ("preset", "path", "hub", "arch") if getattr(model, name) is not None
    ]
    if len(origins) > 1:
        yield wrong_value(
            f"model.{origins[1]}", f"is given beside `model.{origins[0]}`.", "Keep one."
        )
    yield from architecture_problems(model, objective)
    if origins == ["arch"]:
        return
    if model.revision is not None and model.hub is None:
        yield wrong_value("model.revision", "is given without `model.hub`.", "Remove it.")
    if model.dropout and origins and origins[0] != "preset":
        yield wrong_value(
            "model.dropout",
            f"is given beside `model.{origins[0]}`, whose config.json sets it.",
            "Remove it, or change attention_dropout (of GPT-2 attn_pdrop, embd_pdrop and "
            "resid_pdrop) in the model's config.json.",
        )
    if origins:
        sizes_given = [
            name for name in (*sizes, "n_kv_head", "d_ff") if getattr(model, name) is not None
        ]
        for name in sizes_given:
            yield wrong_value(
                f"model.{name}",
                f"is given beside `model.{origins[0]}`, which sets it.",
                f"Remove one of the two; write null to drop `model.{origins[0]}` with "
                f"{option('--set')}.",
            )
        named = None if model.preset is None else find_model(model.preset)
        if named is not None and named.is_gpt2 and model.style not in ("auto", "gpt2"):
            yield wrong_value(
                "model.style", f"is {model.style}, but the preset is a gpt2.", "Remove one."
            )
        elif model.preset is not None and model.style != "auto" and not (named and named.is_gpt2):
            yield wrong_value(
                "model.style", "is given beside a preset, which sets it.", "Remove it."
            )
        return
    for name, size in sizes.items():
        if size is None:
            yield Problem(
                "MISSING_FIELD",
                f"model.{name}",
                f"`model.{name}` is missing.",
                "Give n_layer, n_head and d_model, or a preset such as gpt2-124m.",
            )
    yield from _head_problems(model)


def _head_problems(model: ModelSpec) -> Iterator[Problem]:
    if model.n_head is None or model.d_model is None:
        return
    if model.d_model % model.n_head:
        fitting = _divisors(model.d_model, limit=64)
        yield wrong_value(
            "model.n_head",
            f"is {model.n_head}, which does not divide `model.d_model` {model.d_model}.",
            f"Set model.n_head to one of {fitting}, or d_model to a multiple of {model.n_head}.",
        )
    elif model.style in ("llama", "modern") and (model.d_model // model.n_head) % 2:
        yield wrong_value(
            "model.n_head",
            f"is {model.n_head}: heads of {model.d_model // model.n_head} features can't be "
            f"rotated in pairs, as {model.style} does.",
            "Choose n_head so that d_model / n_head is even.",
        )
    if model.n_kv_head is not None and model.n_head % model.n_kv_head:
        yield wrong_value(
            "model.n_kv_head",
            f"is {model.n_kv_head}, which does not divide `model.n_head` {model.n_head}.",
            f"Set model.n_kv_head to one of {_divisors(model.n_head, limit=64)}.",
        )


def _divisors(number: int, limit: int) -> str:
    divisors = [n for n in range(1, min(number, limit) + 1) if number % n == 0]
    return ", ".join(str(n) for n in divisors)
