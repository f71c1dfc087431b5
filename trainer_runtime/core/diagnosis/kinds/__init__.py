"""The kinds of failures that a log can name, as data: one row a kind, by subject.

A new kind needs only its row; its example is tried by the tests, and docs/diagnosis.md lists it.
"""

from __future__ import annotations

from trainer_runtime.core.diagnosis.kinds import (
    calls,
    clusters,
    data,
    gpus,
    hub,
    kernels,
    machine,
    methods,
    packages,
    precision,
    ranks,
    services,
    setup,
    sharding,
    values,
    versions,
    weights,
)
from trainer_runtime.core.diagnosis.kinds.kind import Kind, Wording

KINDS: tuple[Kind, ...] = (
    *precision.KINDS,
    *packages.KINDS,
    *weights.KINDS,
    *data.KINDS,
    *services.KINDS,
    *gpus.KINDS,
    *ranks.KINDS,
    *machine.KINDS,
    *methods.KINDS,
    *sharding.KINDS,
    *setup.KINDS,
    *clusters.KINDS,
    *kernels.KINDS,
    *hub.KINDS,
    *values.KINDS,
    *versions.KINDS,
    *calls.KINDS,
)

__all__ = ["KINDS", "Kind", "Wording"]
