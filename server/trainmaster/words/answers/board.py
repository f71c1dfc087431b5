"""What the board's page is drawn from: runs, one run, curves, machines."""

from typing import Literal

from trainmaster.words.answers.base import Answer, State
from trainmaster.words.answers.diagnosis import DiagnosisAnswer
from trainmaster.words.answers.fields import field
from trainmaster.words.answers.hosts import HostRow
from trainmaster.words.answers.metrics import MetricSeries
from trainmaster.words.answers.plot import Axis
from trainmaster.words.answers.rentals import CostsAnswer
from trainmaster.words.answers.status import StatusAnswer
from trainmaster.words.answers.watch import WatchRow


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


class BoardRunAnswer(Answer):
    """One run; `patches`: those that can be applied now. `untrusted_lines`: the end of its log."""

    status: StatusAnswer
    diagnosis: DiagnosisAnswer
    patches: list[BoardPatch]
    untrusted_lines: list[str]


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
