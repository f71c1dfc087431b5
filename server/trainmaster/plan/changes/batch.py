"""The batch of a resume: the plan's batch per step, in the micro-batches found to fit."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from trainer_runtime.core.config import ConfigChanges, ConfigDocument
from trainer_runtime.core.diagnosis.remedies import value_at

_MICRO_BATCH, _ACCUMULATION = "batch.micro_batch", "batch.accumulation"
_SEQUENCES = "derived.sequences_per_step"


def of_one_batch(
    changed: ConfigChanges,
    asked: Sequence[str],
    patched: ConfigChanges,
    planned: ConfigDocument,
    newest: ConfigDocument,
) -> dict[str, Any]:
    """`changed`, made consistent with itself and with what the host has changed meanwhile.

    A micro-batch and its accumulation are a step's batch only together: the host may have halved
    the one and doubled the other since the run was planned, so that neither is sent alone. Where
    the caller asks for another batch (`asked`: dotted names), it is that of `planned`, in
    micro-batches of the patch's size (`patched`: what it sets) or of the `newest` attempt's, where
    these divide it and no others were asked for.
    """
    changes = dict(changed)
    if any(path.split(".")[0] == "batch" for path in asked):
        sequences = value_at(planned, _MICRO_BATCH) * value_at(planned, _ACCUMULATION)
        pieces = patched.get(_MICRO_BATCH, value_at(newest, _MICRO_BATCH))
        if _MICRO_BATCH in asked or not pieces or sequences % pieces:
            pieces = value_at(planned, _MICRO_BATCH)
        changes |= {_MICRO_BATCH: pieces, _ACCUMULATION: sequences // pieces}
    if _MICRO_BATCH in changes and _ACCUMULATION in changes:
        processes = value_at(planned, "compute.processes") or 1
        changes[_SEQUENCES] = changes[_MICRO_BATCH] * changes[_ACCUMULATION] * processes
    if changes.get(_SEQUENCES) == value_at(newest, _SEQUENCES):
        changes.pop(_SEQUENCES, None)
    return changes
