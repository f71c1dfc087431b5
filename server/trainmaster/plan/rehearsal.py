"""The rehearsal of a planned training: the same bundle over few steps, or a tiny one. Pure."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

from trainer_runtime.core.protocol.command import command
from trainmaster.errors.errors import UsageError
from trainmaster.plan.frameworks import framework_of
from trainmaster.plan.planned import Planned, plan_again
from trainmaster.plan.spec import TrainingSpec

# `smoke`: as planned, where it is planned; `tiny`: at a small width, wherever.
Kind = Literal["smoke", "tiny"]

LABEL = "rehearsal_of"
_MOST_STEPS, _FEWEST_STEPS, _SHARE = 100, 20, 0.03
_LONGEST_NAME = 63
_SUFFIX = "-rehearsal"
_WIDTH, _LONGEST_SEQUENCE, _SEQUENCES = 64, 128, 8
# Existing weights up to this many parameters are rehearsed as they are.
_MOST_TUNED = 500_000_000
# The sizes of `model.config`, by the words of transformers' classes.
_TINY_SIZES = {
    **dict.fromkeys(("hidden_size", "n_embd", "d_model", "word_embed_proj_dim"), _WIDTH),
    **dict.fromkeys(("num_hidden_layers", "n_layer", "num_layers"), 2),
    **dict.fromkeys(("num_attention_heads", "n_head", "num_key_value_heads"), 2),
    **dict.fromkeys(("intermediate_size", "n_inner", "ffn_dim", "ffn_hidden_size"), 2 * _WIDTH),
    "head_dim": _WIDTH // 2,
}


def rehearsed(planned: Planned, kind: Kind, whole: TrainingSpec, *, continues: bool) -> Planned:
    """The rehearsal of `whole`, as itself or its tiny form was planned. `continues`: it follows.

    Raises:
        UsageError: `REHEARSAL_TOO_LONG`, the training, or its time limit, is no longer than that;
            `UNSUPPORTED`, existing weights are too large to be rehearsed elsewhere.
    """
    config = planned.config
    if kind == "tiny":
        _refuse_large_weights(whole, planned.plan.estimates.parameters)
    steps = _steps(config, kind)
    _refuse_short(planned, steps)
    record = {
        "of": whole.name,
        "kind": kind,
        "spec": digest_of(whole),
        "continues": continues,
        "labels": dict(whole.labels),
        "estimates": planned.plan.estimates.model_dump(mode="json", exclude_none=True),
    }
    labels = {**planned.spec.labels, LABEL: whole.name}
    name = f"{whole.name[: _LONGEST_NAME - len(_SUFFIX)]}{_SUFFIX}"
    made = planned.plan.model_copy(update={"config": _short(config, steps, labels)})
    spec = planned.spec.model_copy(update={"name": name, "labels": labels})
    return replace(planned, spec=spec, plan=made, rehearsal=record)


def whole_again(spec: str, plan: Mapping[str, Any]) -> Planned:
    """The training that a rehearsal was of, by what its run has on record."""
    record = plan["rehearsal"]
    sets = [f"name={json.dumps(record['of'])}", f"labels={json.dumps(record['labels'])}"]
    return plan_again(spec, sets, plan)


def digest_of(spec: TrainingSpec) -> str:
    """Identifies what is trained, wherever that is."""
    text = spec.model_dump_json(exclude={"name", "host", "other_hosts", "labels"})
    return hashlib.sha256(text.encode()).hexdigest()


def tiny_sets(spec: TrainingSpec) -> list[str]:
    """The `--set` items by which a small machine can train what is of this spec."""
    compute = {"gpus": "auto", "gpu": None, "nodes": 1, "processes": "auto", "strategy": "auto"}
    sets: dict[str, Any] = {f"compute.{key}": value for key, value in compute.items()}
    sets |= {"compute.min_nodes": None, "compute.launcher": "process", "compute.image": None}
    if framework_of(spec).runs_program:
        return _as_items(sets)
    length = min(spec.data.seq_len, _LONGEST_SEQUENCE)
    sets |= {"data.seq_len": length, "batch.tokens": _SEQUENCES * length, "precision": "auto"}
    sets |= {"batch.micro_batch": "auto", "batch.ramp": None}
    return _as_items({**sets, **_tiny_model(spec)})


def _tiny_model(spec: TrainingSpec) -> dict[str, Any]:
    model = spec.model
    if model.path or model.hub:
        return {}
    if model.arch:
        sizes = {key: _TINY_SIZES.get(key, value) for key, value in model.config.items()}
        return {"model.config": sizes}
    tiny = {"n_layer": 2, "n_head": 2, "n_kv_head": None, "d_model": _WIDTH, "d_ff": None}
    return {f"model.{key}": value for key, value in {**tiny, "preset": None}.items()}


def _refuse_large_weights(spec: TrainingSpec, parameters: int | None) -> None:
    weights = spec.model.path or spec.model.hub
    if weights and (parameters or 0) > _MOST_TUNED:
        raise UsageError(
            "UNSUPPORTED",
            f"{weights} has {parameters:,} parameters, and existing weights can't be made smaller.",
            f"Rehearse where they are to be trained: {command('launch', 'SPEC', '--smoke=only')}.",
            field="model",
        )


def _as_items(sets: Mapping[str, Any]) -> list[str]:
    return [f"{path}={json.dumps(value)}" for path, value in sets.items()]


def _steps(config: Mapping[str, Any], kind: Kind) -> int:
    total = config.get("steps") or 0
    if kind == "tiny":
        return _FEWEST_STEPS
    return _MOST_STEPS if not total else min(_MOST_STEPS, max(_FEWEST_STEPS, int(_SHARE * total)))


def _refuse_short(planned: Planned, steps: int) -> None:
    total, hours = planned.config.get("steps") or 0, planned.plan.estimates.hours
    if 0 < total <= steps:
        raise UsageError(
            "REHEARSAL_TOO_LONG",
            f"A rehearsal takes {steps} steps, and the training has {total}.",
            "Launch it as it is: it is over as soon as a rehearsal would be.",
            field="steps",
        )
    limit_s = planned.config["limits"].get("max_runtime_s")
    if total and hours and limit_s and hours * 3600 * 1.5 * steps / total > limit_s:
        needed = hours * 60 * 1.5 * steps / total
        raise UsageError(
            "REHEARSAL_TOO_LONG",
            f"A rehearsal of {steps} steps takes some {round(needed)} minutes, and the limits "
            f"allow {round(limit_s / 60)}.",
            "Raise limits.max_runtime or limits.budget_usd, or train a smaller model.",
            field="limits.max_runtime",
        )


def _short(config: Mapping[str, Any], steps: int, labels: Mapping[str, str]) -> dict[str, Any]:
    """The configuration over its first `steps` steps, with the rates that these have in the whole.

    It saves and evaluates in their middle and at their end.
    """
    half = max(1, steps // 2)
    short = {**config, "steps": steps, "labels": dict(labels), "rehearsal": {"steps": steps}}
    if "schedule" in config:
        laid = config["schedule"].get("steps") or config["steps"]
        short["schedule"] = {**config["schedule"], "steps": laid}
    if "phases" in config:
        short["phases"] = _first_phases(config["phases"], steps)
    if "eval" in config:
        samples = config["eval"].get("samples")
        short["eval"] = {**config["eval"], "every_steps": half}
        short["eval"].pop("early_stopping", None)
        if samples is not None:
            short["eval"]["samples"] = {**samples, "every": half}
    saves = {"every": half, "every_is_auto": False, "keep_latest": 3, "mirror": None}
    short["checkpoint"] = {**config["checkpoint"], **saves}
    if "method_args" in config:
        kept = {key: value for key, value in config["method_args"].items() if key != "epochs"}
        short["method_args"] = kept
    return short


def _first_phases(phases: Sequence[Mapping[str, Any]], steps: int) -> list[dict[str, Any]]:
    """The phases that begin within `steps` steps, without what they are to reach."""
    first: list[dict[str, Any]] = []
    for phase in phases:
        begins = sum(earlier["steps"] for earlier in first)
        if begins < steps:
            length = min(phase["steps"], steps - begins)
            first.append({**phase, "steps": length, "success": None})
    return first
