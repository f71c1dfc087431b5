"""A program that is run as it is."""

from __future__ import annotations

from collections.abc import Mapping

from trainmaster.plan.fields.place import Place, nowhere, only
from trainmaster.plan.frameworks.framework import Framework

_PLACES: Mapping[str, str | Place] = {
    "name": "config.json",
    "framework": "the program of `script`, as it is",
    "script": "the relay",
    "script.path": "preparation",
    "script.command": "the relay",
    "script.resume": "the relay",
    "script.elastic": "the resume",
    "script.checkpoints": "the relay",
    "script.checkpoints.path": "the relay",
    "script.checkpoints.step": "the relay",
    "script.checkpoints.keep_latest": "the relay",
    "script.final": "the relay",
    "script.pattern": "the relay",
    "script.stop_signal": "the relay",
    "data": "{data} in the command",
    "data.sources": "{data} in the command",
    "data.sources[].name": "{data.NAME} in the command",
    "data.sources[].path": "{data} in the command",
    "steps": "the relay",
    "tokens": nowhere("its steps are the program's: give steps"),
    "seed": "{seed} in the command",
    "checkpoint": "the relay",
    "checkpoint.every": "when one is overdue",
    "checkpoint.keep_latest": nowhere("`script.checkpoints` says what is kept"),
    "checkpoint.keep_best": nowhere("`script.checkpoints` says what is kept"),
    "checkpoint.keep_every_steps": nowhere("`script.checkpoints` says what is kept"),
    "compute": "{gpus} and {processes} in the command",
    "compute.gpus": "{gpus} in the command",
    "compute.nodes": only("one machine", 1),
    "compute.min_nodes": nowhere("a program's batch is its own"),
    "compute.processes": "{processes} in the command",
    "compute.threads": "OMP_NUM_THREADS",
    "compute.deterministic": nowhere("what a program computes by is its own"),
    "other_hosts": "NNODES, NODE_RANK, MASTER_ADDR, MASTER_PORT; {nodes} … in the command",
}
FRAMEWORK = Framework(
    name="script",
    places=_PLACES,
    otherwise=nowhere("the program's own arguments decide it"),
    runs_program=True,
)
