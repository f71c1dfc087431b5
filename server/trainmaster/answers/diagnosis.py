"""Answers of `diagnose`: findings, the root cause first."""

from typing import Any, Literal

from trainmaster.answers.base import Answer, RecordedAnswer
from trainmaster.answers.fields import field
from trainmaster.answers.fitting import Cap, Fields
from trainmaster.answers.metrics import LogCoverage


class PatchAnswer(Answer):
    """One change that `resume --apply FINDING:PATCH` makes.

    A value of null in `set` sets the field to null.
    """

    id: str
    set: dict[str, Any]
    expected: dict[str, Any] = field(
        description="what the fields hold now; a config that holds something else refuses the patch"
    )
    from_: str | int = field(alias="from", description="where the training resumes")
    skip: dict[str, int] | None = field(default=None, description="data that is skipped")
    keeps_batch: bool = field(description="an optimizer step sees as many tokens as before")
    why: str
    tried: bool | None = field(
        default=None, description="true if it was applied before without lasting success"
    )


class SpeedChange(PatchAnswer):
    """`gain`: how many times as fast the training is expected to be."""

    gain: float
    memory_gib: float | None = None


class OperatorShare(Answer):
    """`share` of all operators' own time; `step_ms` and `calls` per step."""

    name: str
    share: float
    step_ms: float
    calls: float


class ProfileReport(Answer):
    """A profile of `steps` steps from `step` on, by the trainer's own profiler.

    `host` and `gpu`: shares of the steps' time. `added_s`: how much later the training is by it.
    """

    step: int
    steps: int
    step_ms: float
    usual_step_ms: float | None = field(default=None, description="without the profiler")
    added_s: float
    host: dict[str, float]
    gpu: dict[str, float] | None = None
    operators: list[OperatorShare]
    attention: float
    kernels_per_step: float | None = None
    kernel_us: float | None = field(default=None, description="median")
    gap_us: float | None = field(default=None, description="median, between kernels")
    peak_memory_gib: float | None = None
    advice: list[str]
    trace: str | None = None


class SpeedReport(Answer):
    """`shares`: of the time in which the trainer ran; `changes`: those against what a profile
    shows first, then the most gain first."""

    tokens_per_s: float | None = None
    mfu: float | None = None
    expected_mfu: list[float] | None = field(default=None, description="from, to")
    verdict: str
    shares: dict[str, float]
    changes: list[SpeedChange]
    profile: ProfileReport | None = None
    notes: list[str] | None = None


class FindingAnswer(Answer):
    """One diagnosis. Only `evidence` holds text of the log, which anybody may have written."""

    id: str
    code: str
    severity: Literal["info", "warning", "critical"]
    confidence: float
    step: int | None = None
    attempt: int | None = None
    over: bool | None = field(default=None, description="true for a finding that is resolved")
    evidence: list[str]
    explanation: str
    advice: list[str]
    led_to: list[str] = field(description="codes of the symptoms that this cause explains")
    patches: list[PatchAnswer]


class FailureReport(Answer):
    """A failure's text without names, to be filed; it is still anybody's text."""

    findings: list[str] = field(description="what `diagnose` says of it")
    text: str


class ComparedRun(Answer):
    """The last completed run of the same spec; `differs`: field, value there, value here."""

    run_id: str
    differs: list[str]
    omitted: int | None = None


class DiagnosisAnswer(RecordedAnswer):
    """Findings of a run or a file; none where nothing is wrong.

    `unseen` is what was not judged, without a finding.
    `reason` is how a run without findings failed.
    `read_bytes` is how much of a file was read, `series_until_step` the last step
    whose series were evaluated, if there are more.
    """

    cap = Cap(8192, drops=("findings",), always=True)

    run_id: str | None = None
    findings: list[FindingAnswer]
    past: str | None = field(default=None, description="what is over, and what was changed after")
    reason: str | None = field(default=None, description="how it failed, without a finding")
    untrusted_detail: str | None = field(default=None, description="the host's words on `reason`")
    evidence: list[str] | None = field(default=None, description="the last lines of its log")
    compared: ComparedRun | None = field(
        default=None, description="of a failed run: with the last that completed"
    )
    omitted: int | None = field(default=None, description="further findings, less pressing")
    read_bytes: int | None = None
    read_share: float | None = field(
        default=None, description="of a file: parsed share of the lines with numbers, 0 to 1"
    )
    series_until_step: int | None = None
    understood: LogCoverage | None = field(default=None, description="of a file")
    unseen: list[str] | None = field(
        default=None, description="what could not be judged, without findings"
    )
    speed: SpeedReport | None = None
    cursor: str | None = field(default=None, description="continues with the omitted findings")
    next_step: str | None = None

    def say_shortened(self, fields: Fields, lost: dict[str, int]) -> None:
        """The findings that were left out are on the next page."""
        super().say_shortened(fields, lost)
        missing = len(self.findings) - len(fields["findings"])
        if missing:
            fields["omitted"] = (self.omitted or 0) + missing
            fields["cursor"] = fields["findings"][-1]["id"]
