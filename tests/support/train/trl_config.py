"""A configuration of TRL that nothing is trained by."""

from __future__ import annotations

from typing import Any


def trl_config(method: str, **changes: Any) -> dict[str, Any]:
    return {
        "run_id": "tiny-abc234",
        "framework": "trl",
        "method": method,
        "method_args": {},
        "model": {"path": "/m", "revision": None},
        "adapter": None,
        "data": {
            "sources": [{"name": "main", "format": "jsonl"}],
            "tokenizer": "/m",
            "seq_len": 512,
        },
        "batch": {"tokens": 4096, "micro_batch": 4, "accumulation": 2},
        "optimizer": {"name": "adamw", "lr": 1e-5, "weight_decay": 0.1, "grad_clip": 1.0},
        "schedule": {"kind": "cosine", "warmup_steps": 5, "min_lr_ratio": 0.1},
        "steps": 10,
        "precision": "bf16",
        "seed": 1,
        "eval": {"every_steps": 5, "batches": 2},
        "compute": {"device": "cpu"},
        "tracking": {},
        **changes,
    }
