"""The answer about checkpoints that were averaged."""

from trainmaster.answers.base import WholeAnswer


class AveragedAnswer(WholeAnswer):
    """`path`: the model, in the folder of the run `run_id`; `steps`: of which checkpoints, by run;
    `folder`: where it was brought."""

    run_id: str
    path: str
    steps: dict[str, list[int]]
    tensors: int
    size_bytes: int
    folder: str | None = None
    next_step: str | None = None
