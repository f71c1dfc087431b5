"""Answers about runs; their status and their list have modules of their own."""

from collections.abc import Sequence
from typing import Any, ClassVar, Literal

from trainmaster.answers.base import (
    WHY_OLD,
    Answer,
    Number,
    RecordedAnswer,
    State,
    WholeAnswer,
)
from trainmaster.answers.fields import field
from trainmaster.answers.fitting import Cap

_DETAILED_PLAN = Cap(32_000, drops=("warnings", "decisions"))
_FIELDS = Cap(12_000)


class PlanDecision(Answer):
    field: str
    value: Any
    reason: str | None = None  # with details
    source: str | None = None


class TargetPlan(Answer):
    """A spec on one of several machines; memory is of each GPU. `would_fit`: changes."""

    on: str
    fits: bool
    strategy: str | None = None
    micro_batch: int | None = None
    memory_gib: float | None = None
    tokens_per_s: float | None = None
    hours: float | None = None
    usd: float | None = None
    best: str | None = None
    problem: str | None = None
    would_fit: list[str] | None = None


class PlanAnswer(WholeAnswer):
    """The plan of a launch. An estimate that is not possible is omitted.

    For several machines, `targets` compares them. Of a framework alone: its `fields`, a line each,
    and nothing else; of `data: PATH` alone what that is.
    """

    cap = Cap(1_800, drops=("decisions", "warnings"))

    name: str
    host: str | None = None
    decisions: list[PlanDecision] | None = None
    curriculum: dict[str, Any] | None = field(
        default=None, description="the phases by columns; `picture`: rate and mix over the steps"
    )
    estimates: dict[str, Any] | None = None
    gpu: Any = None
    targets: list[TargetPlan] | None = None
    warnings: list[str] | None = None
    fields: list[str] | None = field(default=None, description="`path: type = default; meaning`")
    data: dict[str, Any] | None = None
    unattended: str | None = field(
        default=None, description="`no: WHY` where it needs a keeper and none is installed"
    )
    next_step: str | None = None

    def size_cap(self) -> Cap:
        """A larger one for reasons, and for fields."""
        if self.fields is not None:
            return _FIELDS
        reasons = any(decision.reason is not None for decision in self.decisions or ())
        return _DETAILED_PLAN if reasons else self.cap


class RenderAnswer(WholeAnswer):
    """The bundle of a spec; `files`: the files and folders in `folder`."""

    name: str
    folder: str
    files: list[str]
    warnings: list[str] | None = None
    next_step: str


class LaunchAnswer(WholeAnswer):
    name_taken: str | None = None
    run_id: str
    state: State
    reason: str | None = field(default=None, description="why it is queued")
    resumes_at: str | None = None
    attempt: int
    host: str
    name: str | None = None
    pending: bool | None = field(default=None, description="true until the host was reached")
    cursor: str | None = field(
        default=None, description="for the first wait: events after it are reported"
    )
    applied: str | None = field(default=None, description="the patch, as FINDING:PATCH")
    superseded: list[int] | None = field(
        default=None,
        description="verified checkpoints left behind; kept until one as far is verified",
    )
    warnings: list[str] | None = None
    note: str | None = None
    next_step: str | None = None


class ArrayRun(Answer):
    run_id: str
    state: State
    labels: dict[str, str]


class ArrayAnswer(WholeAnswer):
    """Several runs of one spec, launched as one array; each one's labels say what it varies."""

    array: str
    host: str
    runs: list[ArrayRun]
    warnings: list[str] | None = None
    next_step: str


class LogAnswer(RecordedAnswer):
    lines: list[str]
    cursor: str
    more: bool
    earlier: str | None = field(
        default=None, description="the search ran out of time; as cursor, continues further back"
    )
    unreachable: str | None = field(default=None, description=WHY_OLD)


class Change(Answer):
    """An event: a checkpoint, an evaluation, a new state, the end."""

    run_id: str | None = field(default=None, description="where several runs were awaited")
    event: str
    t: float
    step: int | None = None
    finding: str | None = field(default=None, description="its id")
    detail: str | None = None
    untrusted_detail: str | None = field(default=None, description="the host's words")


class WaitAnswer(RecordedAnswer):
    """Of several runs without an event of one (`timeout`, `all_ended`): no run, state and step."""

    cap = Cap(4096, drops=("changes",), newest=frozenset({"changes"}), always=True)

    event: str
    run_id: str | None = field(default=None, description="the run of the event")
    state: State | None = None
    step: int | None = None
    still_open: int | None = field(default=None, description="of several runs")
    cursor: str
    changes: list[Change]
    omitted: int | None = field(default=None, description="changes that were omitted")
    unreachable: str | None = field(default=None, description=WHY_OLD)
    next_step: str


class CheckpointRow(Answer):
    keep_null: ClassVar[frozenset[str]] = frozenset({"verified"})

    step: int
    time: float
    path: str
    size_bytes: int
    metrics: dict[str, Number]
    tags: list[str]
    verified: bool | None


class SkippedCheckpoint(Answer):
    """A resume passes it over; `untrusted_detail`: what the host says of it."""

    step: int
    reason: Literal["does not verify"] = "does not verify"
    untrusted_detail: str | None = None


class CheckpointsAnswer(RecordedAnswer):
    """`not_ours`: as its log reports them; only its owner can verify and resume them.

    `superseded`: verified ones that a later attempt left behind, kept until it has one as far.
    """

    keep_null: ClassVar[frozenset[str]] = frozenset({"resume_from"})
    cap = Cap(drops=("skipped", "checkpoints"), newest=frozenset({"skipped", "checkpoints"}))

    checkpoints: list[CheckpointRow]
    skipped: list[SkippedCheckpoint]
    resume_from: int | None
    superseded: list[CheckpointRow] | None = None
    not_ours: bool | None = None
    unreachable: str | None = field(default=None, description=WHY_OLD)


class StopAnswer(RecordedAnswer):
    run_id: str
    state: State
    pending: bool | None = None
    next_step: str


def removed_words(removed: Sequence[str]) -> str:
    """Counts and no names: the run's process chose the names of its files."""
    saved = sum(name.startswith("checkpoints/") for name in removed)
    model = ", the final model" if "final" in removed else ""
    rest = len(removed) - saved - bool(model)
    return f"{saved} checkpoints{model} and {rest} other files and folders"


class CleanAnswer(WholeAnswer):
    cap = Cap(16_000, drops=("removed", "kept"))

    run_id: str
    host: str
    removed: list[str]
    freed_bytes: int
    kept: list[str]
    dry_run: bool | None = None
    note: str | None = None


class SkippedFile(Answer):
    path: str
    reason: str


class FetchAnswer(WholeAnswer):
    """The wanted files that are below `folder` now; `more`: some are missing."""

    cap = Cap(16_000, drops=("skipped", "brought"))

    run_id: str
    files: int
    bytes: int
    brought: list[str] | None = field(default=None, description="a few of their paths")
    skipped: list[SkippedFile]
    folder: str
    form: str | None = field(default=None, description="of a model")
    more: bool | None = None
    next_step: str | None = None


class TransferAnswer(WholeAnswer):
    """The transfers that were done."""

    run_id: str
    done: list[str]


class ReplayAnswer(WholeAnswer):
    runs: int
    points: int
    seconds: float
    quarantined: list[str] | None = field(
        default=None, description="runs whose data was refused again"
    )
