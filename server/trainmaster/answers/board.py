"""What the board's page is drawn from: runs, one run, curves, machines."""

from typing import Any, ClassVar, Literal

from trainmaster.answers.base import Answer, Number, State
from trainmaster.answers.diagnosis import DiagnosisAnswer
from trainmaster.answers.fields import field
from trainmaster.answers.hosts import HostRow
from trainmaster.answers.metrics import MetricSeries
from trainmaster.answers.plot import Axis
from trainmaster.answers.rentals import CostsAnswer
from trainmaster.answers.runs import CheckpointRow
from trainmaster.answers.status import StatusAnswer
from trainmaster.answers.watch import WatchRow


class BoardAnswer(Answer):
    """All runs, and what needs attention, a line each; `usd_per_h`: of the rented instances."""

    version: str
    home: str
    attention: list[str]
    runs: list[WatchRow]
    usd_per_h: float | None = None
    next_step: str


class BoardPatch(Answer):
    """What applies a patch now; `finding`, `patch`: their ids."""

    finding: str
    patch: str
    next_step: str


class BoardSetting(Answer):
    """A value of a configuration by its dotted name; `chosen`: the spec names it."""

    keep_null: ClassVar[frozenset[str]] = frozenset({"value"})

    path: str
    value: Any
    chosen: bool | None = None


class BoardCheckpoint(CheckpointRow):
    """`loss`: that of the training at its step. `superseded`: a later attempt left it behind."""

    loss: Number | None = None
    superseded: bool | None = None


class BoardSample(Answer):
    """What the model wrote at a step; `untrusted_detail`: why it could not."""

    documents: ClassVar[frozenset[str]] = frozenset({"untrusted_prompt", "untrusted_text"})

    step: int
    attempt: int
    untrusted_prompt: str
    untrusted_text: str
    untrusted_detail: str | None = None


class BoardRunAnswer(Answer):
    """One run; `patches`: those that can be applied now. `checkpoints` and `samples`: the newest
    first; `metric`: the one by which the best checkpoint is chosen. `untrusted_lines`: the end of
    its log."""

    status: StatusAnswer
    diagnosis: DiagnosisAnswer
    patches: list[BoardPatch]
    settings: list[BoardSetting]
    metric: str
    checkpoints: list[BoardCheckpoint]
    resume_from: int | None = None
    samples: list[BoardSample]
    untrusted_lines: list[str]


class BoardResult(Answer):
    """One metric of a run: its last value, and its best where more or less of it is better."""

    last: Number | None = None
    best: Number | None = None
    best_step: int | None = None


class BoardCompared(Answer):
    run_id: str
    name: str
    state: State
    step: int
    target_step: int | None = None
    results: dict[str, BoardResult]


class BoardDifference(Answer):
    """A setting that not all runs have alike; `values`: by the order of the runs, null without."""

    path: str
    values: list[Any]


class BoardComparisonAnswer(Answer):
    """Runs side by side. `best`: by metric the run with the best value, of runs that can be
    compared; `same`: how many settings are alike."""

    runs: list[BoardCompared]
    keys: list[str]
    best: dict[str, str]
    differences: list[BoardDifference]
    same: int
    notes: list[str] | None = None


class BoardPanel(Answer):
    """Keys that are drawn together. `by_time`: their points stand at milliseconds, not steps."""

    title: str
    keys: list[str]
    by_time: bool


class BoardMark(Answer):
    """An event of a run; `minute`: since its first attempt began."""

    kind: Literal["checkpoint", "restart", "phase", "finding"]
    step: float | None = None
    minute: float
    label: str
    critical: bool | None = None


class BoardCurve(Answer):
    run_id: str
    name: str
    state: State
    target_step: int | None = None
    began_t: float = field(description="Unix seconds, by the clock of its host")
    series: dict[str, MetricSeries]
    marks: list[BoardMark]


class BoardCurvesAnswer(Answer):
    """The curves of one run, or of several to compare; `keys`: what else can be drawn."""

    axis: Axis
    panels: list[BoardPanel]
    keys: list[str]
    runs: list[BoardCurve]
    notes: list[str] | None = None


class BoardMachinesAnswer(Answer):
    hosts: list[HostRow]
    costs: CostsAnswer
