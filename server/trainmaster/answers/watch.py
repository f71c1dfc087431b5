"""The answer of `watch`: a row for each run, the open ones first."""

from trainmaster.answers.base import Answer, Number, RecordedAnswer, State
from trainmaster.answers.fields import field


class WatchRow(Answer):
    run_id: str
    name: str
    state: State
    host: str
    step: int
    target_step: int | None = None
    loss: Number | None = None
    curve: list[float] = field(description="the loss over the run, in a few values")
    tokens_per_s: Number | None = None
    eta_s: float | None = None
    findings: list[str] = field(description="codes of those that are open, the first cause first")
    usd: float | None = None


class WatchAnswer(RecordedAnswer):
    """`usd_per_h`: what the rented instances cost together."""

    runs: list[WatchRow]
    usd_per_h: float | None = None
    next_step: str
