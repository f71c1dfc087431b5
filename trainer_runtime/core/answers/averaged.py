"""What a host's `average` is asked for and answers: a model of averaged checkpoints."""

from __future__ import annotations

from dataclasses import dataclass

from trainer_runtime.core.decoding import JsonRecord

# The model's folder, in that of the run.
FOLDER = "averaged"


@dataclass(frozen=True, slots=True)
class RunSteps(JsonRecord):
    """Checkpoints of the run in `folder`, by their steps."""

    run_id: str
    folder: str
    steps: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class AverageRequest(JsonRecord):
    """`ema`: of their averaged weights, in place of the trained ones."""

    runs: tuple[RunSteps, ...]
    ema: bool = False
    within_s: float = 600.0


@dataclass(frozen=True, slots=True)
class AverageAnswer(JsonRecord):
    """`path`: of the model, in the run's folder."""

    path: str
    checkpoints: int
    tensors: int
    size_bytes: int
