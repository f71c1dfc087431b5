"""Each optimizer in TRL's SFTTrainer, on a tiny model, in this process."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from support.train import optimizers
from support.train.preference_data import make_run, pairs, save_tiny_model, write_rows

from trainer_runtime.core.config.optimizers import OPTIMIZERS

pytestmark = pytest.mark.engine

STEPS = 100


@pytest.fixture(scope="module", autouse=True)
def offline() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HF_HUB_OFFLINE", "1")
        yield


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("inputs")
    rows = [{"prompt": row["prompt"], "completion": row["chosen"]} for row in pairs(220)]
    return save_tiny_model(folder / "model"), write_rows(folder / "rows.jsonl", rows)


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_each_optimizer_learns(name: str, inputs: tuple[Path, Path], tmp_path: Path) -> None:
    run = make_run(
        tmp_path / "run",
        *inputs,
        "sft",
        optimizer={**optimizers.section(name), "weight_decay": 0.0},
        steps=STEPS,
        batch={"micro_batch": 2, "accumulation": 1},
        eval={"every_steps": None, "batches": 0},
        checkpoint={"every": STEPS // 2},
    )
    assert run.train() == 0
    losses = run.series("loss")
    assert sum(losses[step] for step in range(91, 101)) < sum(losses[step] for step in range(1, 11))
