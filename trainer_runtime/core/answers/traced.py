"""What a trace of a training's memory answers: bytes of its tensors, by kind."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from trainer_runtime.core.decoding import JsonRecord

PARAMETERS, GRADIENTS, OPTIMIZER = "parameters", "gradients", "optimizer"
ACTIVATIONS, TEMPORARIES, OTHER = "activations", "temporaries", "other"
KINDS = (PARAMETERS, GRADIENTS, OPTIMIZER, ACTIVATIONS, TEMPORARIES, OTHER)


@dataclass(frozen=True, slots=True)
class MemoryTrace(JsonRecord):
    """Bytes of one process's tensors in steps with `micro_batch` examples at a time.

    `state`: what stays from step to step, and all gradients, by kind; `at_peak`: what of each kind
    is there when all take the most together, `peak_bytes`. Gradients come while activations go, so
    that the peak need not hold them all. `passing_bytes`: the most that activations and temporaries
    take together. `strategy`: of whose processes it is one; `recompute`:
    whether activations are recomputed.
    """

    micro_batch: int
    strategy: str
    recompute: bool
    peak_bytes: int
    passing_bytes: int
    state: Mapping[str, int]
    at_peak: Mapping[str, int]

    @property
    def beside_state_bytes(self) -> int:
        """What the peak holds beside the whole state."""
        return max(0, self.peak_bytes - sum(self.state.values()))
