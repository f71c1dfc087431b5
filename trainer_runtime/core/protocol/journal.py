"""The history of a placement, folded from its supervisor's journal, `supervisor.jsonl`.

The supervisor itself starts from this fold, and the client computes the same one from the mirror:
no state exists outside the journal.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from trainer_runtime.core.decoding import Fields, JsonRecord, number
from trainer_runtime.core.protocol.alert_record import AlertRecord
from trainer_runtime.core.protocol.curve import Curve
from trainer_runtime.core.protocol.event import Event
from trainer_runtime.core.protocol.finding import SEVERITIES, Finding
from trainer_runtime.core.protocol.journal_lines import (
    LEFT,
    Acknowledged,
    AlertChanged,
    AttemptEnded,
    AttemptPlan,
    AttemptRunning,
    AttemptSignalled,
    AttemptStarting,
    Closed,
    FindingClosed,
    FindingReported,
    JournalLine,
    Mirrored,
    MirrorFailed,
    NodeChanged,
    RestartPlanned,
    Sample,
    StateEntered,
    journal_line,
)
from trainer_runtime.core.protocol.states import (
    ENDED_PLACEMENTS,
    AttemptState,
    PlacementState,
    may_follow,
)

NEEDS_OPERATOR = "needs_operator"
_MOST_CLOSED_FINDINGS = 64
_TIME_TO_CHOOSE_S = 10.0  # a choice takes some seconds to reach the host


@dataclass(slots=True)
class AttemptRecord:
    """One life of the trainer process, as the supervisor saw it.

    `why` says why it was started, `set` what was changed for it, `mode` and `candidates` what it
    resumes from, `skip` which data to leave out, `by` which rule and patch chose so
    (None: the client's request). `reason` (an `EndReason`), `code`,
    `signal` and `detail` describe how it ended, `last_words` is the untrusted end of its log;
    `verified_step` is the newest checkpoint that was verified by then.
    """

    number: int
    generation: int
    why: str
    mode: str
    candidates: list[int]
    set: dict[str, Any]
    skip: dict[str, int] | None
    state: AttemptState
    starting_t: float
    running_t: float | None = None
    ended_t: float | None = None
    terminated_t: float | None = None
    terminated_why: str | None = None
    reason: str | None = None
    code: int | None = None
    signal: int | None = None
    detail: str | None = None
    last_words: str | None = None
    last_step: int | None = None
    verified_step: int | None = None
    started_at_step: int | None = None
    by: str | None = None

    def seconds(self, now: float) -> float:
        """How long it has lived, preparation included."""
        return max(0.0, (self.ended_t if self.ended_t is not None else now) - self.starting_t)


@dataclass(slots=True)
class FoundRecord(JsonRecord):
    """A finding as the journal reports it; `finding` is its newest form.

    `closed_t`: when it was over; None while it is not. `news_t`: when it was last news, that is
    opened, opened again, or more severe than before.
    """

    attempt: int
    opened_t: float
    finding: Finding
    closed_t: float | None = None
    news_t: float = 0.0


@dataclass(slots=True)
class Record:
    """A placement's history. `apply` takes the journal's events one by one, in order.

    `closed`: ended, and the supervisor has nothing more to write. `mirrored_step`: the newest
    checkpoint with a complete copy in the host's mirror, if it has one, `mirror_problem`
    why a newer one has none. `disk_free`: GiB over Unix seconds. `findings`: by id, in the order of
    their opening; of the closed ones the newest 64. `alerts`: the messages that the host has to
    send, and their delivery. `nodes`: of a run on several hosts, whether each is `connected` or
    `lost`, by name.
    """

    state: PlacementState = PlacementState.PLACED
    reason: str | None = None
    detail: str | None = None
    generation: int = 0
    attempts: list[AttemptRecord] = field(default_factory=list)
    state_t: float | None = None
    heartbeat_t: float | None = None
    restart_due_t: float | None = None
    pending: AttemptPlan | None = None
    telemetry: dict[str, Any] = field(default_factory=dict)
    disk_free: Curve = field(default_factory=Curve)
    closed: bool = False
    mirrored_step: int | None = None
    mirror_problem: str | None = None
    findings: dict[str, FoundRecord] = field(default_factory=dict)
    alerts: AlertRecord = field(default_factory=AlertRecord)
    nodes: dict[str, str] = field(default_factory=dict)
    last_seq: int = -1

    def apply(self, event: Event) -> None:
        """Apply one event. An event of an unknown kind or format counts as a heartbeat only.

        Raises:
            TransitionError: the event implies an impossible transition.
        """
        self.heartbeat_t, self.last_seq = event.t, event.seq
        line = journal_line(event)
        if line is not None:
            _apply(self, event.t, line)

    @property
    def current(self) -> AttemptRecord | None:
        """The newest attempt, ended or not."""
        return self.attempts[-1] if self.attempts else None

    @property
    def undecided(self) -> bool:
        """Whether the end of the newest attempt still waits for what follows from it."""
        return self.state not in ENDED_PLACEMENTS and self.restart_due_t is None

    @property
    def open_findings(self) -> list[FoundRecord]:
        """What is wrong with the newest attempt, and not over."""
        newest = self.attempts[-1].number if self.attempts else 0
        return [
            item
            for item in self.findings.values()
            if item.closed_t is None and item.attempt == newest
        ]

    def finding_of(self, attempt: int, code: str, t: float) -> FoundRecord | None:
        """The finding that names what the trainer itself warned of at `t`, by whatever step: the
        first of this code that was not over by then."""
        named = (
            item
            for item in self.findings.values()
            if (item.attempt, item.finding.code) == (attempt, code)
            and (item.closed_t is None or item.closed_t >= t)
        )
        return min(named, key=lambda item: item.opened_t, default=None)

    def awaits_choice(self, now: float) -> bool:
        """Whether a restart waits for the operator to choose another one, for some time yet."""
        paused = self.state is PlacementState.RECOVERING and self.reason == NEEDS_OPERATOR
        return paused and (self.restart_due_t or 0.0) > now + _TIME_TO_CHOOSE_S

    @property
    def started_at(self) -> dict[int, int]:
        """The step that each ended attempt started from, where it came to a start."""
        return {
            attempt.number: attempt.started_at_step
            for attempt in self.attempts
            if attempt.started_at_step is not None
        }

    def to_dict(self) -> dict[str, Any]:
        """For immediate serialization: what is neither record nor curve is not copied."""
        body = {name: getattr(self, name) for name in _FIELDS}
        body["attempts"] = [asdict(attempt) for attempt in self.attempts]
        body["pending"] = None if self.pending is None else asdict(self.pending)
        body["alerts"] = asdict(self.alerts)
        body["disk_free"] = self.disk_free.to_dict()
        body["findings"] = {name: item.to_dict() for name, item in self.findings.items()}
        return body

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Record:
        """The record that `to_dict` described, also after a journey through JSON."""
        fields = dict(data)
        fields["state"] = PlacementState(fields["state"])
        fields["attempts"] = [
            AttemptRecord(**{**attempt, "state": AttemptState(attempt["state"])})
            for attempt in fields["attempts"]
        ]
        pending = fields.get("pending")
        fields["pending"] = None if pending is None else AttemptPlan.of(Fields(pending, "record"))
        fields["findings"] = {
            name: FoundRecord.of(Fields(item, "record"))
            for name, item in (fields.get("findings") or {}).items()
        }
        fields["alerts"] = AlertRecord.of(Fields(fields.get("alerts") or {}, "alerts"))
        fields["disk_free"] = Curve.from_dict(fields.get("disk_free"))
        return cls(**fields)


_FIELDS = tuple(item.name for item in fields(Record))


class TransitionError(ValueError):
    """The journal holds a state that cannot follow the one before."""


def check_transition(old: PlacementState, new: PlacementState) -> None:
    """Raises:
    TransitionError: the table does not let `new` follow `old`.
    """
    if not may_follow(old, new):
        raise TransitionError(f"{old.value} cannot become {new.value}")


def _apply(record: Record, t: float, line: JournalLine) -> None:
    if isinstance(line, Sample):
        _sample(record, t, line)
    elif isinstance(line, StateEntered):
        _state(record, t, line)
    elif isinstance(line, Acknowledged):
        record.generation = max(record.generation, line.generation)
    elif isinstance(line, (AttemptStarting, AttemptRunning, AttemptSignalled, AttemptEnded)):
        _attempt(record, t, line)
    elif isinstance(line, RestartPlanned):
        record.restart_due_t, record.pending = line.due_t, line.plan
    elif isinstance(line, FindingReported):
        _finding(record, t, line)
    elif isinstance(line, FindingClosed):
        _finding_closed(record, t, line)
    elif isinstance(line, AlertChanged):
        record.alerts.apply(t, line)
    elif isinstance(line, NodeChanged):
        _node(record, line)
    elif isinstance(line, Mirrored):
        record.mirrored_step, record.mirror_problem = line.step, None
    elif isinstance(line, MirrorFailed):
        record.mirror_problem = line.reason
    elif isinstance(line, Closed):
        record.closed = True


def _node(record: Record, line: NodeChanged) -> None:
    record.nodes[line.name] = line.state
    if line.state == LEFT:
        del record.nodes[line.name]


def _sample(record: Record, t: float, line: Sample) -> None:
    record.telemetry = dict(line.values)
    free_gib = number(record.telemetry.get("disk_free_gib"))
    if free_gib is not None:
        record.disk_free.add(t, free_gib)


def _state(record: Record, t: float, line: StateEntered) -> None:
    check_transition(record.state, line.state)
    record.state, record.state_t = line.state, t
    record.reason, record.detail = line.reason, line.detail
    record.generation = max(record.generation, line.generation)


def _attempt(
    record: Record,
    t: float,
    line: AttemptStarting | AttemptRunning | AttemptSignalled | AttemptEnded,
) -> None:
    if isinstance(line, AttemptStarting):
        _attempt_starting(record, t, line)
        return
    attempt = _attempt_of(record, line.attempt)
    if isinstance(line, AttemptRunning):
        attempt.state, attempt.running_t = AttemptState.RUNNING, t
    elif isinstance(line, AttemptEnded):
        _attempt_ended(attempt, t, line)
    elif attempt.terminated_t is None:
        attempt.terminated_t, attempt.terminated_why = t, line.why


def _attempt_starting(record: Record, t: float, line: AttemptStarting) -> None:
    record.generation = max(record.generation, line.generation)
    record.restart_due_t = record.pending = None
    record.closed = False
    if record.state is not PlacementState.RECOVERING:
        # From this very line on: the next one may be missing when the supervisor is killed.
        check_transition(record.state, PlacementState.PREPARING)
        record.state, record.state_t = PlacementState.PREPARING, t
        record.reason = record.detail = None
    plan = line.plan
    record.attempts.append(
        AttemptRecord(
            number=line.attempt,
            generation=line.generation,
            why=plan.why,
            mode=plan.mode,
            candidates=list(plan.candidates or ()),
            set=dict(plan.set),
            skip=dict(plan.skip) if plan.skip is not None else None,
            state=AttemptState.STARTING,
            starting_t=t,
            by=plan.by,
        )
    )


def _attempt_of(record: Record, number: int) -> AttemptRecord:
    for attempt in reversed(record.attempts):
        if attempt.number == number:
            return attempt
    raise TransitionError(f"attempt {number} was never started")


def _attempt_ended(attempt: AttemptRecord, t: float, line: AttemptEnded) -> None:
    attempt.state, attempt.ended_t = AttemptState.ENDED, t
    if line.heard_t is not None:
        attempt.ended_t = min(t, max(attempt.starting_t, line.heard_t))
    attempt.reason, attempt.detail, attempt.last_words = line.reason, line.detail, line.last_words
    attempt.code, attempt.signal = line.code, line.signal
    attempt.last_step, attempt.started_at_step = line.last_step, line.started_at_step
    attempt.verified_step = line.verified_step


def _finding(record: Record, t: float, line: FindingReported) -> None:
    earlier = record.findings.get(line.finding.id)
    opened_t = earlier.opened_t if earlier is not None else t
    news_t = t if earlier is None or _is_news(earlier, line.finding) else earlier.news_t
    record.findings[line.finding.id] = FoundRecord(
        line.attempt, opened_t, line.finding, news_t=news_t
    )


def _is_news(earlier: FoundRecord, finding: Finding) -> bool:
    before = SEVERITIES.index(earlier.finding.severity)
    return earlier.closed_t is not None or SEVERITIES.index(finding.severity) > before


def _finding_closed(record: Record, t: float, line: FindingClosed) -> None:
    finding = record.findings.get(line.id)
    if finding is None:
        return
    finding.closed_t = t
    over = [name for name, item in record.findings.items() if item.closed_t is not None]
    for name in over[:-_MOST_CLOSED_FINDINGS]:
        del record.findings[name]
