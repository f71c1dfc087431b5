"""What a further node of a job is asked before anything starts: connections, versions, GPUs."""

from __future__ import annotations

import platform
from collections.abc import Mapping
from typing import Any

from trainer_runtime.box.answer import reach
from trainer_runtime.box.answer.facts import gpu_names
from trainer_runtime.core.decoding import Fields

LONGEST_SKEW_S = 5.0


def meet(asked: Fields) -> Mapping[str, Any]:
    """Connect to the job's first node; what came of it, and what has to be the same on all."""
    name, addresses = asked.text("node"), asked.texts("addresses")
    port, nonce, within_s = asked.integer("port"), asked.text("nonce"), asked.number("within_s")
    return {**reach.connect(name, addresses, port, nonce, within_s), **alike()}


def alike() -> Mapping[str, str]:
    """What the nodes of a training have to have in common, by its name in sentences."""
    version = platform.python_version().rpartition(".")[0]
    return {"Python": version, "GPUs": ", ".join(gpu_names()) or "none"}
