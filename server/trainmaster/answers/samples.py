"""The answer about texts that a run's model has written."""

from trainmaster.answers.base import WholeAnswer
from trainmaster.answers.status import Sample


class SamplesAnswer(WholeAnswer):
    """`path`: the weights in the run's folder; none for texts that the training recorded."""

    run_id: str
    step: int | None = None
    path: str | None = None
    device: str | None = None
    samples: list[Sample]
    next_step: str | None = None
