"""A small curriculum for the tests of frameworks: of other mixes, batches, lengths and rates."""

from __future__ import annotations

from typing import Any

from support.host.run_configs import Config
from support.host.tiny_training import SEQ_LEN

BORDERS = [4, 8, 12]


def with_curriculum(config: Config, other: str) -> Config:
    """`other`: the name of the second source."""
    whole: dict[str, Any] = {"seq_len": SEQ_LEN, "steps": 4}
    success = {"metric": "val_loss/main", "not_worse_than_start_pct": 90.0}
    phases = [
        {**whole, "name": "base", "sequences": 8, "sources": {"main": 1.0}, "success": success},
        {**whole, "name": "mixed", "sequences": 16, "sources": {"main": 0.75, other: 0.25}},
        {
            **whole,
            "name": "anneal",
            "sequences": 8,
            "seq_len": SEQ_LEN // 2,
            "lr": {"kind": "linear", "from": None, "to": 0.0},
        },
    ]
    return {**config, "phases": phases, "steps": 12}
