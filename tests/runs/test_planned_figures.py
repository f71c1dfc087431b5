"""What a plan expected beside what was measured."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from trainmaster.cli.views.status import _planned
from trainmaster.runs.status.goodput import planned_figures
from trainmaster.sync.run_view import RunView


def view(**estimates: Any) -> RunView:
    """A stopped run on a GPU that took 41.2 GiB of tensors."""
    progress = SimpleNamespace(
        described={"tokens_per_step": 65536}, step_time_s=0.5, last={"peak_memory_gib": 41.2}
    )
    run = SimpleNamespace(plan={"estimates": estimates})
    return cast(RunView, SimpleNamespace(run=run, progress=progress, ended=True, state=None))


@pytest.mark.parametrize(
    ("source", "named"), [({}, "memory"), ({"memory_source": "trace"}, "memory (by trace)")]
)
def test_the_source_of_planned_memory_stands_beside_it(source: dict[str, str], named: str) -> None:
    figures = planned_figures(view(memory_gib=40.0, tokens_per_s=130e3, **source), None)
    assert (figures["memory_gib"].planned, figures["memory_gib"].seen) == (40.0, 41.2)
    assert figures["memory_gib"].source == source.get("memory_source")
    assert figures["tokens_per_s"].source is None
    [grid] = _planned(figures)
    assert named in [row[0] for row in cast(Any, grid).rows]
