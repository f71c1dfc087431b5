"""The answer of `overview`: what needs attention, what runs, what has ended."""

from trainmaster.answers.base import WholeAnswer
from trainmaster.answers.fields import field
from trainmaster.answers.fitting import Cap


class OverviewAnswer(WholeAnswer):
    """A line for each run or instance, the most pressing first."""

    cap = Cap(760, drops=("ended", "running", "attention"), always=True)

    attention: list[str] = field(description="what needs a decision or attention, or costs")
    running: list[str]
    ended: list[str] = field(description="since the cursor; without one, in the last week")
    cursor: str = field(description="for the next overview, or for wait_for_event")
    next_step: str
