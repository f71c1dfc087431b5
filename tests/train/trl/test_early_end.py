"""TRL's SFTTrainer with a z-loss, averaged weights and an early end, in this process."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.train import early_end
from support.train.early_end import ENDS, MIDDLE
from support.train.preference_data import TrlRun, make_run, pairs, write_rows
from support.train.preference_runs import LORA, resumed, weights

pytestmark = pytest.mark.engine


def test_an_early_end_with_an_adapter_is_the_same_after_a_kill(model: Path, tmp_path: Path) -> None:
    rows = [{"prompt": row["prompt"], "completion": row["chosen"]} for row in pairs(220)]
    written = write_rows(tmp_path / "rows.jsonl", rows)

    def make(name: str) -> TrlRun:
        return make_run(
            tmp_path / name,
            model,
            written,
            "sft",
            adapter=LORA,
            steps=early_end.CHANGES["steps"],
            optimizer={"z_loss": early_end.CHANGES["optimizer__z_loss"]},
            eval=early_end.CHANGES["eval"],
            checkpoint=early_end.CHANGES["checkpoint"],
        )

    straight = make("straight")
    assert straight.train() == 0
    early_end.assert_ended_early(straight.folder, straight.events())
    again, over = resumed(make("again"), straight, MIDDLE), resumed(make("over"), straight, ENDS)
    early_end.assert_same_from(MIDDLE, straight.events(), again.events())
    assert early_end.averages(again.folder) == early_end.averages(straight.folder)
    assert early_end.values_of(over.events()) == {}
    adapters = {weights(run, "adapter_model.safetensors") for run in (straight, again, over)}
    assert len(adapters) == 1
