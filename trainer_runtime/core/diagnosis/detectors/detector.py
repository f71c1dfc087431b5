"""What a detector is, and what it declares of the findings that it reports."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from trainer_runtime.core.decoding import Fields
from trainer_runtime.core.diagnosis.detectors.detector_context import DetectorContext

# What closes a finding besides its own detector: the steps of an attempt go back, another phase of
# the data begins, the attempt ends.
REWIND, PHASE, END = "rewind", "phase", "end"
# Larger values count as infinite: their sums and squares would be.
LARGEST = 1e30


@dataclass(frozen=True, slots=True)
class Code:
    """A finding: its text, and what is proposed against it.

    `explanation`, `evidence` and `advice` are templates over the entry's figures; a line of
    `evidence` that lacks a figure is left out. `remedies` are names of `remedies.REMEDIES`, best
    first; `announces_rewind`: checkpoints from before its onset are wanted while it is open.
    `led_to`: codes that it explains.
    """

    explanation: str
    evidence: tuple[str, ...]
    advice: tuple[str, ...] = ()
    remedies: tuple[str, ...] = ()
    announces_rewind: bool = False
    closed_by: tuple[str, ...] = ()
    led_to: tuple[str, ...] = ()


class Detector:
    """A detector with its state, which is the fields of its dataclass; a hook that it does not
    define is never called.

    `codes`: its findings. `reads`: the metric keys whose finite values `point` gets; of `loss` and
    `val_loss` only where they are an error, which is neither 0 nor a policy's objective.
    `reads_raw`: those of which `raw` gets any value, before `point`; `reads_finite`: of which
    `finite` gets every finite one, between them. `events`: the kinds that
    `event` gets. `restarts_with_phase`: `restart` is called for another phase of the data too.
    `judges_learning`: it is left out of a range test, whose loss is to diverge.
    """

    __slots__ = ()
    codes: ClassVar[Mapping[str, Code]] = {}
    reads: ClassVar[tuple[str, ...]] = ()
    reads_raw: ClassVar[tuple[str, ...]] = ()
    reads_finite: ClassVar[tuple[str, ...]] = ()
    events: ClassVar[tuple[str, ...]] = ()
    restarts_with_phase: ClassVar[bool] = False
    judges_learning: ClassVar[bool] = False

    def restart(self, context: DetectorContext, step: int) -> None:
        """The series start again after `step`; `context` is still that of the steps before. All
        state is forgotten, unless a detector defines this."""
        type(self).__init__(self)

    def raw(self, context: DetectorContext, key: str, step: int, value: float) -> None:
        """Take in a value of `reads_raw`, which may be NaN or infinite."""

    def finite(self, context: DetectorContext, key: str, step: int, value: float) -> None:
        """Take in a value of `reads_finite`."""

    def point(self, context: DetectorContext, key: str, step: int, value: float) -> None:
        """Take in a value of `reads`."""

    def step(self, context: DetectorContext, step: int) -> None:
        """The first point of a new step is about to come."""

    def sample(self, context: DetectorContext, t: float, values: Mapping[str, float]) -> None:
        """Take in finite values of telemetry."""

    def event(self, context: DetectorContext, kind: str, step: int, fields: Fields) -> None:
        """Take in an event of `events`."""

    def tick(self, context: DetectorContext, now: float) -> None:
        """It is `now`, whatever was fed."""


def is_finite(value: float) -> bool:
    return -LARGEST < value < LARGEST
