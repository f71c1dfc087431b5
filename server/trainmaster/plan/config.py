"""Writes the resolved config: the spec's shape with every `auto` decided, and what follows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from trainmaster.plan.architecture import Architecture, flops_per_token
from trainmaster.plan.facts import CorpusFacts, HostFacts
from trainmaster.plan.hyperparameters import Batch
from trainmaster.plan.target import Target
from trainmaster.spec import TrainingSpec

CONFIG_VERSION = 1


@dataclass(frozen=True, slots=True)
class Decided:
    """Every value that a spec may leave open."""

    model: Architecture
    parameters: int
    target: Target
    batch: Batch
    lr: float
    warmup_steps: int
    steps: int
    checkpoint_every: int | str
    max_runtime_s: float
    strategy: str
    threads: int
    compile: bool
    env: dict[str, str]


def resolved_config(
    spec: TrainingSpec, decided: Decided, facts: HostFacts, corpus: CorpusFacts
) -> dict[str, Any]:
    """`config.json` without `run_id`; nothing in it is `auto`."""
    given: dict[str, Any] = spec.model_dump(mode="json")
    return {
        "config_version": CONFIG_VERSION,
        "name": spec.name,
        "framework": spec.framework,
        "method": "pretrain",
        "model": _model(decided.model, spec.model.dropout),
        "data": {
            **given["data"],
            "prepare": "box",
            "fingerprint": corpus.fingerprint,
            "cache_dir": f"{facts.root.rstrip('/')}/cache",
            "skip": [],
        },
        "batch": _batch(decided.batch),
        "optimizer": {**given["optimizer"], "lr": decided.lr},
        "schedule": {**given["schedule"], "warmup_steps": decided.warmup_steps},
        "steps": decided.steps,
        "precision": decided.target.precision,
        "seed": spec.seed,
        "eval": given["eval"],
        "checkpoint": {
            **given["checkpoint"],
            "every": decided.checkpoint_every,
            "every_is_auto": spec.checkpoint.every == "auto",
        },
        "recovery": given["recovery"],
        "compute": {**given["compute"], **_compute(decided)},
        "environment": given["environment"],
        "env": decided.env,
        "labels": given["labels"],
        "limits": {
            "max_runtime_s": decided.max_runtime_s,
            "budget_usd": spec.limits.budget_usd,
        },
        "pty": spec.pty,
        "derived": _derived(decided),
    }


def _model(model: Architecture, dropout: float) -> dict[str, Any]:
    return {
        "n_layer": model.n_layer,
        "n_head": model.n_head,
        "n_kv_head": model.n_kv_head,
        "d_model": model.d_model,
        "d_ff": model.d_ff,
        "vocab_size": model.vocab_size,
        "style": model.style,
        "dropout": dropout,
    }


def _batch(batch: Batch) -> dict[str, Any]:
    return {
        "tokens": batch.tokens,
        "micro_batch": batch.micro_batch,
        "accumulation": batch.accumulation,
        "ramp": None,
    }


def _compute(decided: Decided) -> dict[str, Any]:
    return {
        "device": decided.target.device,
        "gpus": 1 if decided.target.device == "cuda" else 0,
        "threads": decided.threads,
        "compile": decided.compile,
        "strategy": decided.strategy,
    }


def _derived(decided: Decided) -> dict[str, Any]:
    return {
        "parameters": decided.parameters,
        "flops_per_token": flops_per_token(decided.model),
        "sequences_per_step": decided.batch.micro_batch * decided.batch.accumulation,
        "peak_flops": decided.target.gpu.peak_flops if decided.target.gpu else None,
    }
