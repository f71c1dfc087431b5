"""Answers about the output folder of a training that Trainmaster did not start."""

from typing import ClassVar

from trainmaster.answers.base import Answer, Number, State, WholeAnswer
from trainmaster.answers.fields import field
from trainmaster.answers.fitting import Cap


class OutputRow(Answer):
    """A checkpoint of a training that Trainmaster did not start."""

    keep_null: ClassVar[frozenset[str]] = frozenset({"step"})

    step: int | None
    time: float
    path: str
    size_bytes: int
    metrics: dict[str, Number]
    verified: bool


class SkippedOutput(Answer):
    keep_null: ClassVar[frozenset[str]] = frozenset({"step"})

    step: int | None
    path: str
    reason: str


class AdoptAnswer(WholeAnswer):
    """An output folder, and the run that continues it, once there is one.

    `spec`: the starting spec that was written, `open`: its fields that have to be filled in.
    `spec_text`: the spec itself, where nothing is written.
    """

    keep_null: ClassVar[frozenset[str]] = frozenset({"resume_from"})
    documents: ClassVar[frozenset[str]] = frozenset({"spec_text"})
    cap = Cap(drops=("skipped", "checkpoints"))

    framework: str
    folder: str
    checkpoints: list[OutputRow]
    skipped: list[SkippedOutput]
    resume_from: int | None
    run_id: str | None = None
    name: str | None = None
    state: State | None = None
    attempt: int | None = None
    host: str
    pending: bool | None = None
    cursor: str | None = None
    spec: str | None = None
    spec_text: str | None = None
    open: list[str] | None = None
    warnings: list[str] | None = None
    notes: list[str] | None = field(
        default=None, description="differences from the earlier training"
    )
    next_step: str
