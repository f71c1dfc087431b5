"""The answer that lists runs."""

from trainmaster.answers.base import Answer, ItemFailure, RecordedAnswer, State
from trainmaster.answers.fields import field
from trainmaster.answers.fitting import Cap, Fields


class RunRow(Answer):
    run_id: str
    name: str
    state: State
    step: int
    target_step: int | None = None
    host: str
    labels: dict[str, str]
    quarantined: bool | None = field(
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
