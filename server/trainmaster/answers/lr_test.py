"""Answers of `lr-test`."""

from typing import Any

from trainmaster.answers.base import WholeAnswer
from trainmaster.answers.fields import field


class LrTestAnswer(WholeAnswer):
    """What a learning-rate range test has measured, and the rate that it suggests.

    `rates` and `losses` are the table, thinned; a loss is the mean over its neighbours.
    """

    run_id: str
    steps: int
    target_steps: int
    rates: list[float]
    losses: list[float]
    lr: float | None = field(default=None, description="suggested; none where the loss never fell")
    steepest: float | None = field(default=None, description="rate of the loss's fastest fall")
    lowest: float | None = field(default=None, description="rate of the lowest mean loss")
    rule: str
    set: dict[str, Any] | None = field(default=None, description="the patch of the spec")
    expected: dict[str, Any] | None = field(default=None, description="what the spec holds now")
    path: str | None = field(default=None, description="the picture")
    lines: list[str] | None = field(default=None, description="the curve as text")
    next_step: str
