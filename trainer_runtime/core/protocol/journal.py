"""What a placement's supervisor has done, folded from its `supervisor.jsonl`.

The supervisor itself starts from this fold, and the operator's side makes the same one from the
mirror: nobody keeps state that the journal does not hold.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from trainer_runtime.core.protocol.alert_record import AlertRecord
from trainer_runtime.core.protocol.curve import Curve
from trainer_runtime.core.protocol.finding import SEVERITIES, checked
from trainer_runtime.core.protocol.lines import ODD_FIELDS, Event, number
from trainer_runtime.core.protocol.states import (
    ENDED_PLACEMENTS,
    AttemptState,
    PlacementState,
    may_follow,
)

NEEDS_OPERATOR = "needs_operator"
_MOST_CLOSED_FINDINGS = 64
_TIME_TO_CHOOSE_S = 10.0  # a choice takes some seconds to come to the box


@dataclass(slots=True)
class AttemptRecord:
    """One life of the trainer process, as the supervisor saw it.

    `why` says what it was started for, `set` what was changed for it, `mode` and `candidates` what
    it was told to resume from, `skip` which data to leave out, `by` which rule and patch chose so
    (None: whoever asked for it). `reason` (an `EndReason`), `code`,
    `signal` and `detail` tell how it ended, `last_words` what its log said last: text that anybody
    may have written; `verified_step` is the newest checkpoint that stood
    verified then.
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
class FoundRecord:
    """A finding as the journal tells of it: `finding` is its newest `Finding.to_dict()`.

    `closed_t`: when it was over; None while it is not. `news_t`: when it was last news, that is
    opened, opened again, or more severe than before.
    """

    attempt: int
    opened_t: float
    finding: dict[str, Any]
    closed_t: float | None = None
    news_t: float = 0.0


@dataclass(slots=True)
class Record:
    """A placement's history. `apply` takes the journal's events one by one, in order.

    `closed`: ended, and the supervisor has nothing more to write. `mirrored_step`: the newest
    checkpoint that stands whole in its second place on the box, where it has one, `mirror_problem`
    why a newer one does not. `disk_free`: GiB over Unix seconds. `findings`: by id, in the order of
    their opening; of those that are over the newest 64. `alerts`: the messages that the box has to
    send, and what became of them.
    """

    state: PlacementState = PlacementState.PLACED
    reason: str | None = None
    detail: str | None = None
    generation: int = 0
    attempts: list[AttemptRecord] = field(default_factory=list)
    state_t: float | None = None
    heartbeat_t: float | None = None
    restart_due_t: float | None = None
    pending: dict[str, Any] | None = None
    telemetry: dict[str, Any] = field(default_factory=dict)
    disk_free: Curve = field(default_factory=Curve)
    closed: bool = False
    mirrored_step: int | None = None
    mirror_problem: str | None = None
    findings: dict[str, FoundRecord] = field(default_factory=dict)
    alerts: AlertRecord = field(default_factory=AlertRecord)
    last_seq: int = -1

    def apply(self, event: Event) -> None:
        """Take in one event; every event is a sign of life, and of a kind or form that is not known
        nothing more.

        Raises:
            TransitionError: it tells of what can't be.
        """
        self.heartbeat_t = event["t"]
        self.last_seq = event["seq"]
        handler = _HANDLERS.get(event["kind"])
        if handler is None:
            return
        try:
            handler(self, event)
        except TransitionError:
            raise
        except ODD_FIELDS:
            return

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
            found
            for found in self.findings.values()
            if found.closed_t is None and found.attempt == newest
        ]

    def finding_of(self, attempt: int, code: str, t: float) -> FoundRecord | None:
        """The finding that names what the trainer itself warned of at `t`, by whatever step: the
        first of this code that was not over by then."""
        named = (
            found
            for found in self.findings.values()
            if (found.attempt, found.finding.get("code")) == (attempt, code)
            and (found.closed_t is None or found.closed_t >= t)
        )
        return min(named, key=lambda found: found.opened_t, default=None)

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
        body = asdict(replace(self, disk_free=Curve()))
        return {**body, "disk_free": self.disk_free.to_dict()}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Record:
        """The record that `to_dict` described, also after a journey through JSON."""
        fields = dict(data)
        fields["state"] = PlacementState(fields["state"])
        fields["attempts"] = [
            AttemptRecord(**{**attempt, "state": AttemptState(attempt["state"])})
            for attempt in fields["attempts"]
        ]
        fields["findings"] = {
            name: FoundRecord(**found) for name, found in (fields.get("findings") or {}).items()
        }
        fields["alerts"] = AlertRecord.from_dict(fields.get("alerts") or {})
        fields["disk_free"] = Curve.from_dict(fields.get("disk_free"))
        return cls(**fields)


class TransitionError(ValueError):
    """The journal tells of a state that cannot follow the one before."""


def check_transition(old: PlacementState, new: PlacementState) -> None:
    """Raises:
    TransitionError: the table does not let `new` follow `old`.
    """
    if not may_follow(old, new):
        raise TransitionError(f"{old.value} cannot become {new.value}")


def _state(record: Record, event: Event) -> None:
    new = PlacementState(event["state"])
    check_transition(record.state, new)
    record.state, record.state_t = new, event["t"]
    record.reason, record.detail = event.get("reason"), event.get("detail")
    record.generation = max(record.generation, int(event.get("generation", 0)))


def _acknowledged(record: Record, event: Event) -> None:
    record.generation = max(record.generation, int(event["generation"]))


def _attempt_starting(record: Record, event: Event) -> None:
    record.generation = max(record.generation, int(event["generation"]))
    record.restart_due_t = record.pending = None
    record.closed = False
    if record.state is not PlacementState.RECOVERING:
        # From this very line on: the next one may be missing when the supervisor is killed.
        check_transition(record.state, PlacementState.PREPARING)
        record.state, record.state_t = PlacementState.PREPARING, event["t"]
        record.reason = record.detail = None
    record.attempts.append(
        AttemptRecord(
            number=int(event["attempt"]),
            generation=int(event["generation"]),
            why=str(event["why"]),
            mode=str(event["mode"]),
            candidates=[int(step) for step in event["candidates"]],
            set=dict(event["set"]),
            skip=event.get("skip"),
            state=AttemptState.STARTING,
            starting_t=event["t"],
            by=event.get("by"),
        )
    )


def _attempt_running(record: Record, event: Event) -> None:
    attempt = _named(record, event)
    attempt.state, attempt.running_t = AttemptState.RUNNING, event["t"]


def _attempt_signalled(record: Record, event: Event) -> None:
    attempt = _named(record, event)
    if attempt.terminated_t is None:
        attempt.terminated_t, attempt.terminated_why = event["t"], event["why"]


_TOLD_AT_THE_END = (
    "code",
    "signal",
    "detail",
    "last_words",
    "last_step",
    "started_at_step",
    "verified_step",
)


def _attempt_ended(record: Record, event: Event) -> None:
    attempt = _named(record, event)
    attempt.state, attempt.ended_t = AttemptState.ENDED, event["t"]
    heard_t = event.get("heard_t")  # of one that went unseen: when it was last known to live
    if heard_t is not None:
        attempt.ended_t = min(event["t"], max(attempt.starting_t, float(heard_t)))
    attempt.reason = event["reason"]
    for name in _TOLD_AT_THE_END:
        setattr(attempt, name, event.get(name))


def _restart_planned(record: Record, event: Event) -> None:
    record.restart_due_t = event["due_t"]
    record.pending = {key: event[key] for key in ("why", "mode", "candidates", "set", "skip")}
    record.pending["by"] = event.get("by")


def _closed(record: Record, event: Event) -> None:
    record.closed = True


def _mirrored(record: Record, event: Event) -> None:
    record.mirrored_step, record.mirror_problem = event.get("step"), None


def _mirror_failed(record: Record, event: Event) -> None:
    record.mirror_problem = str(event.get("reason"))


def _finding(record: Record, event: Event) -> None:
    finding = checked(event["finding"])
    known = record.findings.get(finding["id"])
    opened_t = known.opened_t if known is not None else event["t"]
    news_t = event["t"] if known is None or _is_news(known, finding) else known.news_t
    record.findings[finding["id"]] = FoundRecord(
        int(event["attempt"]), opened_t, finding, news_t=news_t
    )


def _is_news(known: FoundRecord, finding: Mapping[str, Any]) -> bool:
    before = SEVERITIES.index(known.finding["severity"])
    return known.closed_t is not None or SEVERITIES.index(finding["severity"]) > before


def _finding_closed(record: Record, event: Event) -> None:
    found = record.findings.get(str(event["id"]))
    if found is None:
        return
    found.closed_t = event["t"]
    over = [name for name, item in record.findings.items() if item.closed_t is not None]
    for name in over[:-_MOST_CLOSED_FINDINGS]:
        del record.findings[name]


def _alert(record: Record, event: Event) -> None:
    record.alerts.apply(event)


def _sample(record: Record, event: Event) -> None:
    record.telemetry = dict(event.get("values") or {})
    free_gib = number(record.telemetry.get("disk_free_gib"))
    if free_gib is not None:
        record.disk_free.add(event["t"], free_gib)


def _named(record: Record, event: Event) -> AttemptRecord:
    for attempt in reversed(record.attempts):
        if attempt.number == event["attempt"]:
            return attempt
    raise TransitionError(f"attempt {event['attempt']} was never started")


_HANDLERS = {
    "state": _state,
    "acknowledged": _acknowledged,
    "attempt_starting": _attempt_starting,
    "attempt_running": _attempt_running,
    "attempt_signalled": _attempt_signalled,
    "attempt_ended": _attempt_ended,
    "restart_planned": _restart_planned,
    "sample": _sample,
    "finding": _finding,
    "finding_closed": _finding_closed,
    "alert": _alert,
    "mirrored": _mirrored,
    "mirror_failed": _mirror_failed,
    "closed": _closed,
}
