"""The results of parsing: points in columns, events, and the reading of a single line."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

# The clock of lines that have an epoch alone.
EPOCHS = "epochs"
# That of lines with an epoch and a batch, but no number of batches in an epoch.
WITHIN_EPOCHS = "within epochs"
# That of lines with a batch and what may be the number of batches, but no epoch.
BATCHES = "batches"
# That of lines whose counter has no name, `[100] loss=2.5`: it is a step if it rises.
UNNAMED = "unnamed"
# That of lines whose step may stand on the line above.
BELOW_COUNTER = "below a counter"


@dataclass(frozen=True, slots=True)
class Point:
    """One number of one line.

    `step` is the optimizer step; `inferred`: the line itself does not contain it. `t` is Unix
    seconds where the line has a time (without a zone it counts as UTC). `segment` counts how often
    the steps of this rank went back before. `line_offset` is the line's first byte in the stream.
    `value` may be NaN or infinite.
    """

    key: str
    step: int
    t: float | None
    value: float
    rank: int
    segment: int
    line_offset: int
    inferred: bool = False


class LogEvent(NamedTuple):
    """An event that a line reports. `text` comes from the log and is untrusted.

    Kinds: `checkpoint` (text: its path), `started` (text: the first step), `resumed`,
    `completed`, `overflow` (a step skipped by the loss scaler).
    """

    kind: str
    step: int | None
    rank: int
    line_offset: int
    text: str = ""


class StepFrom(Enum):
    """Where a reading's step comes from."""

    LINE = "line"
    LAST = "last"  # the last step printed before it
    MICRO = "micro"  # a count of micro-batches, by the ratio in lines that contain both
    LOG = "log"  # HF's lines: progress bar, epoch, or else the count of logs
    EPOCH = "epoch"  # the epoch that a heading above names; of its lines the closing one
    ABOVE = "above"  # the counter that the line directly above names
    COUNT = "count"  # the number of the line, because the user requested it


class Heading(Enum):
    """What a line says about the lines below it."""

    EPOCH = "epoch"  # its number is the line's step, the number of epochs its `lap_steps`
    COUNTER = "counter"  # the step of the next line
    EVALUATION = "evaluation"
    TRAINING = "training"


@dataclass(slots=True)
class Reading:
    """The content of one line, before its step and segment are assigned.

    `values` are metric keys with their values; `clock` names the counter that its steps belong to.
    Where steps restart in every epoch, `laps` epochs of `lap_steps` steps came before; with
    `counts_epochs`, `laps` is the epoch's own number, and its log's first epoch decides whether
    they are counted from 0 or 1. `lap_steps` alone is the total behind the step: of the training,
    or of an epoch whose heading stands above. `heads` is what a line says about those below it (see
    `context.py`). `rounded`: the framework printed few digits; `taught`: a pattern
    of the user read it. `loss_as`: the line's own name of its loss, where that may be a mean or an
    estimate: it counts only in a log that has no other loss. `facts` concern the
    run, not a step (`total_steps`, `steps_per_epoch`, …). `rank` is None where the line does not
    contain it.
    """

    clock: str
    values: list[tuple[str, float]] = field(default_factory=list)
    step: float | None = None
    source: StepFrom = StepFrom.LINE
    micro: float | None = None
    laps: float | None = None
    lap_steps: float | None = None
    rank: int | None = None
    rounded: bool = False
    taught: bool = False
    loss_as: str = ""
    counts_epochs: bool = False
    heads: Heading | None = None
    events: list[tuple[str, str]] = field(default_factory=list)
    facts: dict[str, float] = field(default_factory=dict)


@dataclass(slots=True)
class Batch:
    """Rows of one shape: `columns[k][i]` is the value of `keys[k]` at `steps[i]`, in the segment
    `segments[i]`.

    `lines[i]` is the line of row i within the block that was read at once; batches of the same
    block follow each other and have the same `block`.
    """

    keys: tuple[str, ...]
    columns: list[Sequence[float]]
    steps: Sequence[float]
    rank: int
    segments: Sequence[int]
    inferred: bool
    block: object
    lines: Sequence[int]
    offset_of: Callable[[int], int]
    time_of: Callable[[int], float | None]
    counted: bool = False  # some of its steps are the number of a log, for want of any other

    def __len__(self) -> int:
        return len(self.keys) * len(self.steps)

    def points(self) -> Iterator[Point]:
        columns = [list(column) for column in self.columns]
        for row, (step, segment) in enumerate(zip(self.steps, self.segments, strict=True)):
            offset, t = self.offset_of(row), self.time_of(row)
            for key, column in zip(self.keys, columns, strict=True):
                yield Point(
                    key, int(step), t, column[row], self.rank, segment, offset, self.inferred
                )


@dataclass(slots=True)
class Parsed:
    """The points and events of the bytes fed; `len` and iteration are over points, by line."""

    batches: list[Batch] = field(default_factory=list)
    events: list[LogEvent] = field(default_factory=list)

    def __len__(self) -> int:
        return sum(map(len, self.batches))

    def __iter__(self) -> Iterator[Point]:
        points = [point for batch in self.batches for point in batch.points()]
        points.sort(key=lambda point: point.line_offset)
        return iter(points)

    def extend(self, other: Parsed) -> None:
        self.batches += other.batches
        self.events += other.events
