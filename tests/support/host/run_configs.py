"""Configurations of small trainings, as a host finds them, made without the client.

It needs the runtime and nothing else: the GPU program runs on machines that have only PyTorch.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from trainer_runtime.core.files.corpus import Source, fingerprint, list_files

Config = dict[str, Any]
Events = list[dict[str, Any]]


def pretraining(
    framework: str,
    model: Config,
    data: Config,
    batch: Mapping[str, int],
    *,
    device: str = "cpu",
) -> Config:
    """A pretraining without evaluations that saves every 10 steps. `batch`: the sequences of a
    micro-batch and the number of micro-batches of a step."""
    sequences = batch["micro_batch"] * batch["accumulation"]
    return {
        "config_version": 1,
        "framework": framework,
        "method": "pretrain",
        "model": model,
        "data": data,
        "batch": {"tokens": sequences * data["seq_len"], **batch},
        "optimizer": {"name": "adamw", "lr": 1e-3, "weight_decay": 0.1, "grad_clip": 1.0},
        "schedule": {"kind": "constant", "warmup_steps": 5, "min_lr_ratio": 0.1},
        "steps": 30,
        "precision": "bf16",
        "seed": 1337,
        "eval": {"every_steps": None, "batches": 0},
        "checkpoint": {"every": 10, "keep_latest": 3, "keep_best": 0, "metric": "val_loss"},
        "compute": {"device": device, "threads": 1, "compile": False},
    }


def bytes_of(sources: Mapping[str, Path], seq_len: int, cache: Path) -> Config:
    """The data section for the bytes of the texts in each source's folder."""
    listed = [Source(name, str(path), list_files(path)) for name, path in sources.items()]
    return {
        "sources": [
            {"name": name, "path": str(path), "format": "text", "weight": 1.0}
            for name, path in sources.items()
        ],
        "tokenizer": "byte",
        "seq_len": seq_len,
        "fingerprint": fingerprint(listed, "byte", seq_len),
        "cache_dir": str(cache),
        "skip": [],
    }


def model_of(size: Mapping[str, int], vocab_size: int, style: str = "gpt2") -> Config:
    """The model section for these sizes, without dropout."""
    sizes = {"n_kv_head": size["n_head"], "d_ff": 4 * size["d_model"], **size}
    return {**sizes, "vocab_size": vocab_size, "style": style, "dropout": 0.0}


def changed(config: Config, changes: Mapping[str, Any]) -> Config:
    """A copy with other values: of a `section__field`, or of a whole section."""
    config = copy.deepcopy(config)
    for path, value in changes.items():
        section, _, field = path.partition("__")
        if field:
            config[section][field] = value
        else:
            config[section] = value
    return config
