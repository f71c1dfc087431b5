"""Writes the resolved config: the spec's shape with every `auto` decided, and what follows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from trainer_runtime.core.corpus import ON_BOX
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
    environment: dict[str, Any]
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
        "data": _data(given["data"], facts.cache_folder, corpus),
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
        "environment": decided.environment,
        "env": decided.env,
        "secrets": given["secrets"],
        "labels": given["labels"],
        "alerts": given["alerts"],
        "limits": {
            "max_runtime_s": decided.max_runtime_s,
            "budget_usd": spec.limits.budget_usd,
        },
        "pty": spec.pty,
        "derived": _derived(decided),
    }


def _data(given: dict[str, Any], cache: str, corpus: CorpusFacts) -> dict[str, Any]:
    """As given, but that each source's path is where the box reads it; `upload` is what has to be
    sent there, by source."""
    folder = f"{cache}/sources/{corpus.fingerprint}"
    sent = {source.name: f"{folder}/{source.sent_as}" for source in corpus.sent}
    config = {
        **given,
        "sources": [
            {**source, "path": sent.get(source["name"], source["path"].removeprefix(ON_BOX))}
            for source in given["sources"]
        ],
        "prepare": "box",
        "fingerprint": corpus.fingerprint,
        "cache_dir": cache,
        "skip": [],
    }
    if not corpus.sent:
        return config
    upload = {
        "sources": {source.name: source.path for source in corpus.sent},
        "size_bytes": sum(source.size_bytes for source in corpus.sent),
        "listing": corpus.listing,
    }
    prepare = "here" if given["prepare"] == "here" else "box"
    return {**config, "prepare": prepare, "upload": upload}


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
