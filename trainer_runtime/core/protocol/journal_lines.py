"""What the supervisor writes into the journal, a class for each kind of line.

`journal_line` reads what any version has written: fields that it does not know are ignored.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from trainer_runtime.core.decoding import Fields
from trainer_runtime.core.protocol.event import Event
from trainer_runtime.core.protocol.finding import Finding
from trainer_runtime.core.protocol.states import PlacementState


@dataclass(frozen=True, slots=True)
class StateEntered:
    """The placement is in another state; `generation`: the request that this answers."""

    state: PlacementState
    reason: str | None
    detail: str | None
    generation: int

    @classmethod
    def of(cls, fields: Fields) -> StateEntered:
        return cls(
            state=PlacementState(fields.text("state")),
            reason=fields.find_text("reason"),
            detail=fields.find_text("detail"),
            generation=fields.integer("generation", 0),
        )


@dataclass(frozen=True, slots=True)
class Acknowledged:
    """A request is answered that changes nothing."""

    generation: int

    @classmethod
    def of(cls, fields: Fields) -> Acknowledged:
        return cls(fields.integer("generation"))


@dataclass(frozen=True, slots=True)
class AttemptPlan:
    """What an attempt starts from and changes.

    `candidates`: the steps to resume from, best first; None: found out when it starts. `set` holds
    new values by dotted name, `skip` the data to leave out, `by` the rule and patch that chose so.
    """

    why: str
    mode: str
    candidates: tuple[int, ...] | None
    set: Mapping[str, object]
    skip: Mapping[str, int] | None = None
    by: str | None = None

    @classmethod
    def of(cls, fields: Fields) -> AttemptPlan:
        has_candidates = fields.values.get("candidates") is not None
        return cls(
            why=fields.text("why"),
            mode=fields.text("mode"),
            candidates=fields.integers("candidates") if has_candidates else None,
            set=dict(fields.open_map("set")),
            skip=_skip(fields.find_section("skip")),
            by=fields.find_text("by"),
        )

    def to_dict(self) -> dict[str, Any]:
        """Its fields in a line of the journal."""
        return {
            "why": self.why,
            "by": self.by,
            "mode": self.mode,
            "candidates": None if self.candidates is None else list(self.candidates),
            "set": dict(self.set),
            "skip": dict(self.skip) if self.skip else None,
        }


def _skip(fields: Fields | None) -> Mapping[str, int] | None:
    return None if fields is None else {name: fields.integer(name) for name in fields.values}


@dataclass(frozen=True, slots=True)
class AttemptStarting:
    attempt: int
    generation: int
    plan: AttemptPlan

    @classmethod
    def of(cls, fields: Fields) -> AttemptStarting:
        plan = AttemptPlan.of(fields)
        return cls(fields.integer("attempt"), fields.integer("generation"), plan)


@dataclass(frozen=True, slots=True)
class AttemptRunning:
    attempt: int

    @classmethod
    def of(cls, fields: Fields) -> AttemptRunning:
        return cls(fields.integer("attempt"))


@dataclass(frozen=True, slots=True)
class AttemptSignalled:
    """The attempt is asked to save and end."""

    attempt: int
    why: str

    @classmethod
    def of(cls, fields: Fields) -> AttemptSignalled:
        return cls(fields.integer("attempt"), fields.text("why"))


@dataclass(frozen=True, slots=True)
class AttemptEnded:
    """`heard_t`: of an end that nobody saw, when the attempt was last known to live."""

    attempt: int
    reason: str
    detail: str | None = None
    last_words: str | None = None
    code: int | None = None
    signal: int | None = None
    last_step: int | None = None
    started_at_step: int | None = None
    verified_step: int | None = None
    heard_t: float | None = None

    @classmethod
    def of(cls, fields: Fields) -> AttemptEnded:
        return cls(
            attempt=fields.integer("attempt"),
            reason=fields.text("reason"),
            detail=fields.find_text("detail"),
            last_words=fields.find_text("last_words"),
            code=fields.find_integer("code"),
            signal=fields.find_integer("signal"),
            last_step=fields.find_integer("last_step"),
            started_at_step=fields.find_integer("started_at_step"),
            verified_step=fields.find_integer("verified_step"),
            heard_t=fields.find_time("heard_t"),
        )


@dataclass(frozen=True, slots=True)
class RestartPlanned:
    """Another attempt follows at `due_t` (Unix seconds)."""

    due_t: float
    plan: AttemptPlan

    @classmethod
    def of(cls, fields: Fields) -> RestartPlanned:
        return cls(fields.time("due_t"), AttemptPlan.of(fields))


@dataclass(frozen=True, slots=True)
class Sample:
    """What the host measured, by key; also the supervisor's heartbeat."""

    values: Mapping[str, object]

    @classmethod
    def of(cls, fields: Fields) -> Sample:
        return cls(fields.open_map("values"))


@dataclass(frozen=True, slots=True)
class FindingReported:
    """A finding is open, or has changed. `tied_to`: the code of the one that it explains."""

    attempt: int
    finding: Finding
    tied_to: str | None

    @classmethod
    def of(cls, fields: Fields) -> FindingReported:
        finding = fields.find_section("finding")
        if finding is None:
            raise fields.error("finding", "is missing")
        return cls(fields.integer("attempt"), Finding.of(finding), fields.find_text("while"))


@dataclass(frozen=True, slots=True)
class FindingClosed:
    id: str

    @classmethod
    def of(cls, fields: Fields) -> FindingClosed:
        return cls(fields.text("id"))


@dataclass(frozen=True, slots=True)
class FindingsMuted:
    """A code of an attempt has been reported as often as allowed."""

    attempt: int
    code: str
    critical: bool

    @classmethod
    def of(cls, fields: Fields) -> FindingsMuted:
        critical = fields.flag("critical", False)
        return cls(fields.integer("attempt"), fields.text("code"), critical)


@dataclass(frozen=True, slots=True)
class AlertChanged:
    """What became of the message `id`: `phase` is `fired`, `sent` or `failed`.

    `message` stands in the line that fires it, `due_t` where it is tried again.
    """

    id: str
    phase: str
    to: str | None
    message: Fields | None
    reason: str | None
    due_t: float | None

    @classmethod
    def of(cls, fields: Fields) -> AlertChanged:
        return cls(
            id=fields.text("id"),
            phase=fields.text("phase"),
            to=fields.find_text("to"),
            message=fields.find_section("message"),
            reason=fields.find_text("reason"),
            due_t=fields.find_time("due_t"),
        )


LEFT = "left"


@dataclass(frozen=True, slots=True)
class NodeChanged:
    """A node of a run on several is `connected`, or `lost`, or has `left` it with its job."""

    name: str
    state: str

    @classmethod
    def of(cls, fields: Fields) -> NodeChanged:
        return cls(fields.text("name"), fields.text("state"))


@dataclass(frozen=True, slots=True)
class Mirrored:
    """The newest checkpoint that has a whole second copy on the host; None: none has any more."""

    step: int | None

    @classmethod
    def of(cls, fields: Fields) -> Mirrored:
        return cls(fields.find_integer("step"))


@dataclass(frozen=True, slots=True)
class MirrorFailed:
    reason: str

    @classmethod
    def of(cls, fields: Fields) -> MirrorFailed:
        return cls(fields.text("reason", "unknown"))


@dataclass(frozen=True, slots=True)
class Closed:
    """The supervisor has nothing more to write."""

    @classmethod
    def of(cls, fields: Fields) -> Closed:
        return cls()


JournalLine = (
    StateEntered
    | Acknowledged
    | AttemptStarting
    | AttemptRunning
    | AttemptSignalled
    | AttemptEnded
    | RestartPlanned
    | Sample
    | FindingReported
    | FindingClosed
    | FindingsMuted
    | AlertChanged
    | NodeChanged
    | Mirrored
    | MirrorFailed
    | Closed
)

_KINDS: Mapping[str, Callable[[Fields], JournalLine]] = {
    "state": StateEntered.of,
    "acknowledged": Acknowledged.of,
    "attempt_starting": AttemptStarting.of,
    "attempt_running": AttemptRunning.of,
    "attempt_signalled": AttemptSignalled.of,
    "attempt_ended": AttemptEnded.of,
    "restart_planned": RestartPlanned.of,
    "sample": Sample.of,
    "finding": FindingReported.of,
    "finding_closed": FindingClosed.of,
    "findings_muted": FindingsMuted.of,
    "alert": AlertChanged.of,
    "node": NodeChanged.of,
    "mirrored": Mirrored.of,
    "mirror_failed": MirrorFailed.of,
    "closed": Closed.of,
}


def journal_line(event: Event) -> JournalLine | None:
    """The line by its kind; None for a kind that is not known, or fields that such a line never
    has: it is of another version, or its file is damaged."""
    read = _KINDS.get(event.kind)
    if read is None:
        return None
    try:
        return read(event.fields)
    except ValueError:
        return None
