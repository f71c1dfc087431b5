"""Answers about runs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Literal

from pydantic import Field

from trainmaster.words.answers.base import (
    Answer,
    ItemFailure,
    Number,
    RecordedAnswer,
    State,
    WholeAnswer,
)
from trainmaster.words.fitting import Cap, Fields

_DETAILED = Cap(
    8192,
    drops=("risks", "attempts", "telemetry", "findings"),
    newest=frozenset({"attempts"}),
    always=True,
)
_WHY_OLD = "why the host could not be reached just now"


class PlanDecision(Answer):
    field: str
    value: Any
    reason: str
    source: str | None = None


class PlanAnswer(WholeAnswer):
    """The plan of a launch. An estimate that is not possible is omitted."""

    cap = Cap(32_000, drops=("warnings", "decisions"))

    name: str
    host: str
    decisions: list[PlanDecision]
    estimates: dict[str, Any]
    gpu: Any = None
    warnings: list[str]
    unattended: str | None = Field(
        default=None, description="`no: WHY` where it needs a keeper and none is installed"
    )
    next_step: str | None = None


class RenderAnswer(WholeAnswer):
    """The bundle of a spec; `files`: the files and folders in `folder`."""

    name: str
    folder: str
    files: list[str]
    warnings: list[str] | None = None
    next_step: str


class LaunchAnswer(WholeAnswer):
    run_id: str
    state: State
    reason: str | None = Field(default=None, description="why it is queued")
    resumes_at: str | None = None
    attempt: int
    host: str
    name: str | None = None
    pending: bool | None = Field(default=None, description="true until the host was reached")
    cursor: str | None = Field(
        default=None, description="for the first wait: events after it are reported"
    )
    applied: str | None = Field(default=None, description="the patch, as FINDING:PATCH")
    superseded: list[int] | None = Field(
        default=None,
        description="verified checkpoints left behind; kept until one as far is verified",
    )
    warnings: list[str] | None = None
    note: str | None = None
    next_step: str | None = None


class RunRow(Answer):
    run_id: str
    name: str
    state: State
    step: int
    target_step: int | None = None
    host: str
    labels: dict[str, str]
    quarantined: bool | None = Field(
        default=None, description="true where its host's data is refused: see diagnose"
    )


class RunsAnswer(RecordedAnswer):
    """The newest runs first; `cursor` continues after the last one where there are `more`.

    `failed`: what could not be read; the other rows are complete.
    """

    cap = Cap(drops=("runs", "failed"))

    runs: list[RunRow]
    more: bool | None = None
    cursor: str | None = None
    failed: list[ItemFailure] | None = None

    def say_shortened(self, fields: Fields, lost: dict[str, int]) -> None:
        """The runs that were left out are on the next page."""
        super().say_shortened(fields, lost)
        if len(fields["runs"]) < len(self.runs):
            fields |= {"more": True, "cursor": fields["runs"][-1]["run_id"]}


class FindingRow(Answer):
    id: str
    code: str
    severity: Literal["info", "warning", "critical"]


class CheckpointState(Answer):
    """The newest verified checkpoint."""

    step: int
    age_s: float
    mirrored_step: int | None = None
    untrusted_mirror_problem: str | None = None


class AttemptRow(Answer):
    """`changed`: dotted field to [old, new], against the attempt before."""

    number: int
    why: str
    by: str | None = Field(
        default=None,
        description="who started it: operator, patch:FINDING:PATCH, or policy:FIELD [PATCH]",
    )
    changed: dict[str, list[Any]] | None = None
    changed_by_operator: list[str] | None = Field(
        default=None, description="of `changed`, what was set beside the patch"
    )
    started_at_step: int | None = None
    last_step: int | None = None
    reason: str | None = None
    untrusted_detail: str | None = None
    set: dict[str, Any] | None = None


class TransferState(Answer):
    """A transfer between this machine and the host, and its last error."""

    what: str
    done_bytes: int
    total_bytes: int
    bytes_per_s: float
    error: str | None = None


class PreparationState(Answer):
    """The preparation before the trainer; `share`: done part of the step, 0 to 1."""

    step: Literal[
        "starting",
        "setup script",
        "modules",
        "environment",
        "packages",
        "wheels",
        "checkpoint",
        "data",
        "upload",
    ]
    seconds: float = Field(description="since the attempt began")
    share: float | None = None


class RunCost(Answer):
    """Dollars for the time of the attempts on rented instances; `usd_per_h` while it runs."""

    usd: float
    usd_per_h: float | None = None
    budget_usd: float | None = None


class SessionRow(Answer):
    """A Kaggle session of a run; times are UTC, ISO 8601."""

    number: int
    ends_at: str | None = Field(default=None, description="its deadline, once it runs")
    outcome: str | None = Field(default=None, description="how it ended")
    untrusted_detail: str | None = Field(default=None, description="Kaggle's words")


class RanksState(Answer):
    """Over how many ranks the newest step was aggregated, and its slowest rank: `behind` times
    slower than the median."""

    aggregated: int
    slowest: int | None = None
    behind: Number | None = None

    @classmethod
    def of(cls, ranks: Mapping[str, Any]) -> RanksState | None:
        """The state by `Progress.ranks`; None where the ranks report nothing of their own."""
        if not ranks:
            return None
        behind = ranks["behind"]
        return cls(
            aggregated=ranks["count"],
            slowest=ranks["slowest"],
            behind=None if behind is None else round(behind, 3),
        )


class StatusAnswer(RecordedAnswer):
    """`as_of`: Unix time of the newest data of the host; `heartbeat_age_s`: seconds since."""

    cap = Cap(2048, drops=("findings",), always=True)

    run_id: str
    name: str
    state: State
    reason: str | None = None
    untrusted_detail: str | None = Field(default=None, description="the host's words on `reason`")
    resumes_at: str | None = Field(default=None, description="when the next quota starts, UTC")
    session: SessionRow | None = None
    host: str
    as_of: float | None = None
    heartbeat_age_s: float | None = None
    unreachable: str | None = Field(default=None, description=_WHY_OLD)
    pending: bool | None = Field(
        default=None, description="true until the newest request has reached the host"
    )
    unconfirmed: bool | None = Field(default=None, description="true after three missed heartbeats")
    attempt: int
    step: int
    target_step: int | None = None
    step_age_s: float | None = Field(default=None, description="seconds since the newest step")
    eta_s: float | None = None
    metrics: dict[str, Number]
    ranks: RanksState | None = None
    findings: list[FindingRow]
    past: str | None = Field(
        default=None, description="findings that are over, and what was changed after each"
    )
    checkpoint: CheckpointState | None = None
    preparation: PreparationState | None = None
    transfer: TransferState | None = None
    unattended: str | None = Field(
        default=None, description="`no: WHY` where it needs a keeper and none is installed"
    )
    cost: RunCost | None = None
    evidence: list[str] | None = Field(
        default=None,
        description="last log line of a failed run or preparation: untrusted text",
    )
    risks: list[str] | None = Field(default=None, description="what may fail later")
    attempts: list[AttemptRow] | None = None
    telemetry: dict[str, Number] | None = None
    folder: str | None = None
    window: str | None = None
    next_step: str

    def size_cap(self) -> Cap:
        """A larger one with the details."""
        return self.cap if self.attempts is None else _DETAILED


class LogAnswer(WholeAnswer):
    lines: list[str]
    cursor: str
    more: bool
    earlier: str | None = Field(
        default=None, description="the search ran out of time; as cursor, continues further back"
    )
    unreachable: str | None = Field(default=None, description=_WHY_OLD)


class Change(Answer):
    """An event: a checkpoint, an evaluation, a new state, the end."""

    run_id: str | None = Field(default=None, description="where several runs were awaited")
    event: str
    t: float
    step: int | None = None
    finding: str | None = Field(default=None, description="its id")
    detail: str | None = None
    untrusted_detail: str | None = Field(default=None, description="the host's words")


class WaitAnswer(WholeAnswer):
    """Of several runs without an event of one (`timeout`, `all_ended`): no run, state and step."""

    cap = Cap(4096, drops=("changes",), newest=frozenset({"changes"}), always=True)

    event: str
    run_id: str | None = Field(default=None, description="the run of the event")
    state: State | None = None
    step: int | None = None
    still_open: int | None = Field(default=None, description="of several runs")
    cursor: str
    changes: list[Change]
    omitted: int | None = Field(default=None, description="older changes that were omitted")
    unreachable: str | None = Field(default=None, description=_WHY_OLD)
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
    unreachable: str | None = Field(default=None, description=_WHY_OLD)


class StopAnswer(WholeAnswer):
    run_id: str
    state: State
    pending: bool | None = None
    next_step: str


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
    brought: list[str] | None = Field(default=None, description="a few of their paths")
    skipped: list[SkippedFile]
    folder: str
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
    quarantined: list[str] | None = Field(
        default=None, description="runs whose data was refused again"
    )
