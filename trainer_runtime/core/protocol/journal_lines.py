"""What the supervisor writes into the journal, a class for each kind of line.

`journal_line` reads what any version has written: fields that it does not know are ignored.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from trainer_runtime.core.decoding import Fields, JsonRecord
from trainer_runtime.core.protocol.event import Event
from trainer_runtime.core.protocol.finding import Finding
from trainer_runtime.core.protocol.states import PlacementState


@dataclass(frozen=True, slots=True)
class StateEntered(JsonRecord):
    """The placement is in another state; `generation`: the request that this answers."""

    state: PlacementState
    reason: str | None
    detail: str | None
    generation: int = 0


@dataclass(frozen=True, slots=True)
class Acknowledged(JsonRecord):
    """A request is answered that changes nothing."""

    generation: int


@dataclass(frozen=True, slots=True)
class AttemptPlan(JsonRecord):
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


def _skip(fields: Fields | None) -> Mapping[str, int] | None:
    return None if fields is None else {name: fields.integer(name) for name in fields.values}


@dataclass(frozen=True, slots=True)
class AttemptStarting(JsonRecord):
    attempt: int
    generation: int
    plan: AttemptPlan = field(metadata={"read": AttemptPlan.of})


@dataclass(frozen=True, slots=True)
class AttemptRunning(JsonRecord):
    attempt: int


@dataclass(frozen=True, slots=True)
class AttemptSignalled(JsonRecord):
    """The attempt is asked to save and end."""

    attempt: int
    why: str


@dataclass(frozen=True, slots=True)
class AttemptEnded(JsonRecord):
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


@dataclass(frozen=True, slots=True)
class RestartPlanned(JsonRecord):
    """Another attempt follows at `due_t` (Unix seconds)."""

    due_t: float
    plan: AttemptPlan = field(metadata={"read": AttemptPlan.of})


@dataclass(frozen=True, slots=True)
class Sample(JsonRecord):
    """What the host measured, by key; also the supervisor's heartbeat."""

    values: Mapping[str, object]


@dataclass(frozen=True, slots=True)
class FindingReported(JsonRecord):
    """A finding is open, or has changed. `tied_to`: the code of the one that it explains."""

    attempt: int
    finding: Finding
    tied_to: str | None = field(metadata={"key": "while"})


@dataclass(frozen=True, slots=True)
class FindingClosed(JsonRecord):
    id: str


@dataclass(frozen=True, slots=True)
class FindingsMuted(JsonRecord):
    """A code of an attempt has been reported as often as allowed."""

    attempt: int
    code: str
    critical: bool = False


def _message(fields: Fields) -> Fields | None:
    return fields.find_section("message")


@dataclass(frozen=True, slots=True)
class AlertChanged(JsonRecord):
    """What became of the message `id`: `phase` is `fired`, `sent` or `failed`.

    `message` stands in the line that fires it, `due_t` where it is tried again.
    """

    id: str
    phase: str
    to: str | None
    message: Fields | None = field(metadata={"read": _message})
    reason: str | None
    due_t: float | None


LEFT = "left"


@dataclass(frozen=True, slots=True)
class NodeChanged(JsonRecord):
    """A node of a run on several is `connected`, or `lost`, or has `left` it with its job."""

    name: str
    state: str


@dataclass(frozen=True, slots=True)
class Mirrored(JsonRecord):
    """The newest checkpoint that has a whole second copy on the host; None: none has any more."""

    step: int | None


@dataclass(frozen=True, slots=True)
class MirrorFailed(JsonRecord):
    reason: str = "unknown"


@dataclass(frozen=True, slots=True)
class Closed(JsonRecord):
    """The supervisor has nothing more to write."""


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
    """The line by its kind; None as `Event.read_by` has it."""
    return event.read_by(_KINDS)
