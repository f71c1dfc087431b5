"""Checks `model.arch` and `model.config` against what transformers knows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from trainmaster.errors.errors import Problem, wrong_value
from trainmaster.plan.fields.field_tree import nearest
from trainmaster.plan.fields.model import ModelSpec
from trainmaster.plan.frameworks.packages import TRANSFORMERS
from trainmaster.plan.transformers_architectures import (
    FEED_FORWARD,
    HEADS,
    KEY_HEADS,
    LAYERS,
    WIDTH,
    field_named,
    fields_by_architecture,
    objective_of,
    whole_config,
)

_KINDS = {bool: "true or false", int: "a whole number", float: "a number", str: "a text"}
# What the tokenizer and the host decide.
_NOT_GIVEN = ("use_cache", "bos_token_id", "eos_token_id", "pad_token_id")
# The fields of a model that the architecture's own configuration has instead.
_INSTEAD = ("n_layer", "n_head", "n_kv_head", "d_model", "d_ff", "vocab_size", "dropout", "style")


def architecture_problems(model: ModelSpec, objective: str) -> Iterator[Problem]:
    """What is wrong with an architecture of transformers by name; nothing without one."""
    if model.arch is None:
        if model.config:
            yield wrong_value(
                "model.config",
                "is given without `model.arch`.",
                "Name the architecture, or remove it.",
            )
        return
    fields = fields_by_architecture(objective).get(model.arch)
    if fields is None:
        yield _unknown(model.arch, objective)
        return
    for name in _INSTEAD:
        if getattr(model, name) != type(model).model_fields[name].default:
            yield wrong_value(
                f"model.{name}",
                "is given beside `model.arch`, whose sizes stand in its own words.",
                f"Move it into model.config, which takes {', '.join(fields)}.",
            )
    unfit = list(_field_problems(model, fields))
    yield from unfit
    if not unfit:
        yield from _contradictions(model.arch, whole_config(model.arch, model.config))


def _unknown(arch: str, objective: str) -> Problem:
    other = objective_of(arch)
    if other is not None:
        return wrong_value(
            "model.arch",
            f"is {arch}, which `objective` {objective} does not train.",
            f"Set objective to {other}, for which framework is hf; or name another architecture.",
        )
    architectures = list(fields_by_architecture(objective))
    meant = nearest(arch, architectures)
    guess = f" Did you mean {meant}?" if meant else ""
    return wrong_value(
        "model.arch",
        f"is {arch!r}: transformers {TRANSFORMERS.tried} has no such {objective} language model."
        f"{guess}",
        f"It takes one of {', '.join(architectures)}.",
    )


def _field_problems(model: ModelSpec, fields: Mapping[str, Any]) -> Iterator[Problem]:
    for name, value in model.config.items():
        field = f"model.config.{name}"
        if name in _NOT_GIVEN:
            yield wrong_value(field, "is decided by the tokenizer or the host.", "Remove it.")
        elif name not in fields:
            meant = nearest(name, list(fields))
            guess = f" Did you mean `{meant}`?" if meant else ""
            yield Problem(
                "UNKNOWN_KEY",
                field,
                f"`{field}` is not a field of {model.arch}'s configuration.{guess}",
                f"`model.config` takes {', '.join(sorted(fields.keys() - {*_NOT_GIVEN}))}.",
            )
        elif not _is_alike(value, fields[name]):
            kind = _KINDS.get(type(fields[name]), "another type")
            yield Problem(
                "WRONG_TYPE", field, f"`{field}` is {value!r}.", f"`{field}` takes {kind}."
            )
    for names in (WIDTH, LAYERS, HEADS, FEED_FORWARD):
        needed = field_named(names, fields)
        if needed is None or needed in model.config or fields[needed] is None:
            continue
        yield Problem(
            "MISSING_FIELD",
            f"model.config.{needed}",
            f"`model.config.{needed}` is missing: the size of a model is the user's choice.",
            f"Give it; {model.arch}'s own default is {fields[needed]}.",
        )


def _is_alike(value: Any, default: Any) -> bool:
    """Whether a value has the type of a field's default; null says nothing about it."""
    if default is None or value is None:
        return True
    if isinstance(default, bool) or isinstance(value, bool):
        return isinstance(default, bool) and isinstance(value, bool)
    if isinstance(default, int | float) and isinstance(value, int | float):
        return isinstance(default, float) or float(value).is_integer()
    return isinstance(value, type(default))


def _contradictions(arch: str, config: Mapping[str, Any]) -> Iterator[Problem]:
    names = {
        size: field_named(words, config)
        for size, words in (("width", WIDTH), ("heads", HEADS), ("keys", KEY_HEADS))
    }
    width, heads, keys = (config.get(name or "") for name in names.values())
    for name in filter(None, (*names.values(), field_named(LAYERS, config))):
        if not isinstance(config[name], int) or config[name] < 1:
            size = "null" if config[name] is None else config[name]
            yield wrong_value(f"model.config.{name}", f"is {size}.", "Give 1 or more.")
            return
    if heads and config.get("head_dim") is None and width % heads:
        yield wrong_value(
            f"model.config.{names['heads']}",
            f"is {heads}, which does not divide `{names['width']}` {width}.",
            "Choose sizes of which one divides the other.",
        )
    if heads and keys and heads % keys:
        yield wrong_value(
            f"model.config.{names['keys']}",
            f"is {keys}, which does not divide `{names['heads']}` {heads}.",
            f"Set it to a divisor of {heads}.",
        )
    layers, kinds = config.get(field_named(LAYERS, config) or ""), config.get("layer_types")
    if isinstance(kinds, list) and len(kinds) != layers:
        yield wrong_value(
            "model.config.layer_types",
            f"lists {len(kinds)} layers, but the model has {layers}.",
            f"List {layers}, or leave it out.",
        )
    chosen = config.get("num_experts_per_tok")
    experts = config.get("num_local_experts") or config.get("num_experts")
    if isinstance(chosen, int) and isinstance(experts, int) and chosen > experts:
        yield wrong_value(
            "model.config.num_experts_per_tok",
            f"is {chosen}, but {arch} has {experts} experts here.",
            f"Set it to at most {experts}.",
        )
