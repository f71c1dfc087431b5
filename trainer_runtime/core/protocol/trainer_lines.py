"""What a trainer writes into `events.jsonl`, a class for each kind of line that is not a metric.

Lines with nothing but a step and metrics (`metric`, `eval`, `history`) have `Event.step` and
`Event.values`. Fields that are not known are ignored.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from trainer_runtime.core.decoding import Fields, JsonRecord, number
from trainer_runtime.core.protocol.event import Event
from trainer_runtime.core.protocol.figures import number_text
from trainer_runtime.core.protocol.profile import Profile
from trainer_runtime.core.protocol.text import code_word

_DESCRIBING = ("parameters", "device", "precision", "tokens_per_step", "peak_flops", "torch")


@dataclass(frozen=True, slots=True)
class Started:
    """The trainer is about to take its first step.

    `saved_by`: the attempt that had saved the checkpoint it resumed from. `skipped`: the
    checkpoints that it passed over, with the reason. `described`: model and device.
    """

    step: int
    resumed_from: int | None
    saved_by: int | None
    target_step: int | None
    skipped: Mapping[int, str]
    described: Mapping[str, object]

    @classmethod
    def of(cls, fields: Fields) -> Started:
        values = fields.values
        return cls(
            step=fields.integer("step", 0),
            resumed_from=fields.find_integer("resumed_from"),
            saved_by=fields.find_integer("saved_by"),
            target_step=fields.find_integer("target_step"),
            skipped={
                skip.integer("step"): skip.text("reason", "") for skip in fields.sections("skipped")
            },
            described={key: values[key] for key in _DESCRIBING if values.get(key) is not None},
        )


@dataclass(frozen=True, slots=True)
class StoppedEarly(JsonRecord):
    """The training ends since `metric` has not improved for so many `evaluations`."""

    metric: str
    best: float | None
    best_step: int
    evaluations: int

    @property
    def words(self) -> str:
        metric = "/".join(map(code_word, self.metric.split("/")))
        best = "" if self.best is None else f"; best {number_text(self.best)}"
        return (
            f"stopped early: {metric} has not improved for {self.evaluations} evaluations"
            f"{best} at step {self.best_step}"
        )


@dataclass(frozen=True, slots=True)
class TargetChanged(JsonRecord):
    """The step that the training goes to, since it is known or because it `stopped_early`."""

    target_step: int | None
    stopped_early: StoppedEarly | None = None


@dataclass(frozen=True, slots=True)
class CheckpointChanged:
    """`action` is `saved`, `verified`, `failed` or `pruned`; `save_s` what saving has taken,
    `stall_s` how long the training waited of it, `phase` the tag of a phase that ends with it."""

    step: int
    action: str
    path: str
    size_bytes: int
    metrics: Mapping[str, object]
    save_s: float
    reason: str | None
    phase: str | None = None
    stall_s: float | None = None

    @classmethod
    def of(cls, fields: Fields) -> CheckpointChanged:
        took_s = (number(fields.values.get(key)) or 0.0 for key in ("stall_s", "write_s"))
        return cls(
            step=fields.integer("step"),
            action=fields.text("action", ""),
            path=fields.text("path", ""),
            size_bytes=fields.integer("size_bytes", 0),
            metrics=fields.open_map("metrics"),
            save_s=sum(took_s),
            reason=fields.find_text("reason"),
            phase=next((tag for tag in fields.texts("tags") if tag.startswith("phase:")), None),
            stall_s=number(fields.values.get("stall_s")),
        )


@dataclass(frozen=True, slots=True)
class Decided:
    """What the trainer decided by itself: `what`, with the value that it took and the reason."""

    what: str
    value: int | str | None
    reason: str

    @classmethod
    def of(cls, fields: Fields) -> Decided:
        value = fields.values.get("value")
        if not isinstance(value, (int, str)) or isinstance(value, bool):
            value = None
        return cls(fields.text("what"), value, fields.text("reason", ""))


@dataclass(frozen=True, slots=True)
class PhaseChanged:
    """A phase begins, or it `ended` with a verdict.

    `metric`: what the verdict is by, None without one; `value` at its end, `limit` the most that it
    may be, `at_start` its value at the phase's start. `on_miss`: what follows if it is not `met`.
    `drawn`: how many sequences the mix has taken of each source, where the trainer reports it.
    """

    name: str
    ended: bool = False
    metric: str | None = None
    value: float | None = None
    limit: float | None = None
    at_start: float | None = None
    met: bool | None = None
    on_miss: str = "warn"
    drawn: Mapping[str, int] = field(default_factory=dict)

    @classmethod
    def of(cls, fields: Fields) -> PhaseChanged:
        return cls(
            name=fields.text("name", ""),
            ended=fields.text("action", "begin") == "end",
            metric=fields.find_text("metric"),
            value=number(fields.values.get("value")),
            limit=fields.find_number("limit"),
            at_start=fields.find_number("at_start"),
            met=fields.flag("met", True) if "met" in fields.values else None,
            on_miss=fields.text("on_miss", "warn"),
            drawn=_counts(fields.open_map("drawn")),
        )

    @property
    def verdict(self) -> str | None:
        """How it ended, in words; None without a measure of success."""
        if self.met is None or self.metric is None:
            return None
        value = "not measured" if self.value is None else number_text(self.value)
        limit = "" if self.limit is None else f", limit {number_text(self.limit)}"
        metric = "/".join(map(code_word, self.metric.split("/")))
        return f"{'met' if self.met else 'missed'}: {metric} {value}{limit}"


def _counts(values: Mapping[str, object]) -> Mapping[str, int]:
    return {name: n for name, n in values.items() if type(n) is int and n >= 0}


@dataclass(frozen=True, slots=True)
class Warned(JsonRecord):
    """The trainer's own warning, such as the guard's of a loss that is not finite."""

    code: str | None
    step: int | None
    message: str | None
    values: Mapping[str, object] | None


@dataclass(frozen=True, slots=True)
class Completed(JsonRecord):
    """All steps are done; `final` is the folder of the final model."""

    final: str | None


@dataclass(frozen=True, slots=True)
class RanksAggregated:
    """What `count` ranks reported of a step, aggregated. `slowest` is the rank with the worst value
    of the metric `key`, `behind` how many times slower than the median it is."""

    step: int
    count: int
    key: str | None
    slowest: int | None
    behind: float | None

    @classmethod
    def of(cls, fields: Fields) -> RanksAggregated:
        pace = fields.find_section("pace")
        return cls(
            step=fields.integer("step"),
            count=fields.integer("ranks"),
            key=None if pace is None else pace.text("key"),
            slowest=None if pace is None else pace.integer("slowest"),
            behind=None if pace is None else pace.number("behind"),
        )


TrainerLine = (
    Started
    | TargetChanged
    | CheckpointChanged
    | Decided
    | PhaseChanged
    | Warned
    | RanksAggregated
    | Profile
    | Completed
)

_KINDS: Mapping[str, Callable[[Fields], TrainerLine]] = {
    "started": Started.of,
    "target": TargetChanged.of,
    "checkpoint": CheckpointChanged.of,
    "decision": Decided.of,
    "phase": PhaseChanged.of,
    "warning": Warned.of,
    "rank_metric": RanksAggregated.of,
    "profile": Profile.of,
    "completed": Completed.of,
}


def trainer_line(event: Event) -> TrainerLine | None:
    """The line by its kind; None as `Event.read_by` has it, and where it holds metrics alone."""
    return event.read_by(_KINDS)
