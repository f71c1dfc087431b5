"""TRL's fine-tuning by two ranks whose rows have different numbers of tokens, over gloo."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from support.runs.running_run import begin_with
from support.train.preference_data import make_run, write_rows
from support.train.ranks_run import BOUND_S, RanksRun

pytestmark = pytest.mark.engine

STEPS, ROWS = 4, 8


def test_two_ranks_minimise_the_objective_that_one_would(model: Path, tmp_path: Path) -> None:
    """Each token counts alike, whichever rank it is on."""
    rows = [{"prompt": f"{n} =", "completion": " x" * (1 + n * n % 17)} for n in range(80)]
    written = write_rows(tmp_path / "rows.jsonl", rows)
    curves = [curve_of(tmp_path, model, written, ranks) for ranks in (1, 2)]
    assert len(curves[0]) == STEPS + 1
    for key, values in curves[0].items():
        assert curves[1][key] == pytest.approx(values, rel=1e-5), key


def curve_of(folder: Path, model: Path, rows: Path, ranks: int) -> dict[tuple[str, int], Any]:
    """The values of each step, by so many ranks that share the rows of a step."""
    config = make_run(
        folder / f"unused{ranks}",
        model,
        rows,
        "sft",
        steps=STEPS,
        batch={"micro_batch": 2, "accumulation": ROWS // 2 // ranks},
        optimizer={"z_loss": 0.01, "label_smoothing": 0.1},
        eval={"every_steps": STEPS, "batches": 2},
        compute={"processes": ranks, "strategy": "ddp" if ranks > 1 else "single"},
    ).config
    run = RanksRun(folder / f"ranks{ranks}", config)
    begin_with(run.folder / "packages", "")  # with the packages that TRL needs
    assert run.start(1).wait(timeout=BOUND_S) == 0, run.log(1)
    return run.curve("attempts/1")
