"""Answers of `inspect`."""

from typing import Literal

from trainmaster.answers.base import Answer, Number, WholeAnswer
from trainmaster.answers.fields import field

Code = Literal[
    "hang_collective", "hang_data", "hang_checkpoint", "slow_not_hung", "moving", "stall"
]


class RanksSeen(Answer):
    """Ranks at the same place. `lines` are the innermost frames of the first of them, with names of
    the training: untrusted text.

    `pids` are of `ranks` in their order, `worker_pids` of the first one's workers, on its host.
    `state` is the kernel's letter; `blocked` names calls about files that have not returned.
    """

    ranks: list[int]
    pids: list[int] | None = None
    at: str
    state: str
    cpu_share: float = field(description="of one core")
    step: int | None = None
    lines: list[str]
    blocked: list[str] | None = None
    workers: int | None = None
    worker_pids: list[int] | None = None
    worker_lines: list[str] | None = None


class InspectionAnswer(WholeAnswer):
    """`verdict`: `moving` and `slow_not_hung` need nothing, `stall` is a hang of unknown cause.

    `rank` differs from the others. `gpus` is columnar, a value per GPU. `finding` is the id of
    the supervisor's finding of the same. `stacks_file`, on this machine, has every frame.
    """

    run_id: str
    attempt: int
    verdict: Code
    confidence: float
    why: str
    rank: int | None = None
    advice: list[str]
    step: int | None = None
    silent_s: float | None = field(default=None, description="since the last step")
    usual_step_s: float | None = None
    world_size: int | None = None
    ranks: list[RanksSeen]
    gpus: dict[str, list[Number | None]] | None = None
    finding: str | None = None
    stacks_file: str | None = None
    py_spy: str | None = field(
        default=None, description="what came of py-spy where a process did not answer by itself"
    )
    next_step: str | None = None
