"""The answer about what a run was trained on."""

from typing import Any

from trainmaster.answers.base import WholeAnswer
from trainmaster.answers.fields import field
from trainmaster.answers.fitting import Cap


class DataCardAnswer(WholeAnswer):
    """The data card of a run."""

    cap = Cap(128_000)

    run_id: str
    card: dict[str, Any] = field(description="data_card.json of the run's folder")
    realised: dict[str, dict[str, float]] | None = field(
        default=None, description="by phase that has ended: each source's share of its sequences"
    )
