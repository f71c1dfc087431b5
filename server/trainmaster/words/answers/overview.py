"""The answer of `overview`: what needs attention, what runs, what has ended."""

from pydantic import Field

from trainmaster.words.answers.base import WholeAnswer
from trainmaster.words.fitting import Cap


class OverviewAnswer(WholeAnswer):
    """A line for each run or instance, the most pressing first."""

    cap = Cap(760, drops=("ended", "running", "attention"), always=True)

    attention: list[str] = Field(description="what needs a decision or attention, or costs")
    running: list[str]
    ended: list[str] = Field(description="since the cursor; without one, in the last week")
    cursor: str = Field(description="for the next overview, or for wait_for_event")
    next_step: str
