"""LitGPT's pretraining by a curriculum whose steps differ in mix, batch, length and rate."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from support.host.run_configs import Config, changed
from support.host.tiny_training import SEQ_LEN
from support.train.curriculum import BORDERS, with_curriculum
from support.train.litgpt_training import Run, assert_same_tensors, pretraining
from support.train.operator_threads import operators_in_this_thread_alone

pytestmark = pytest.mark.engine


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Config:
    config = with_curriculum(pretraining(tmp_path_factory.mktemp("litgpt")), "docs")
    return changed(config, {"checkpoint__every": 3, "checkpoint__keep_latest": 9})


@pytest.fixture(scope="module")
def straight(base: Config, tmp_path_factory: pytest.TempPathFactory) -> Run:
    run = Run(tmp_path_factory.mktemp("litgpt") / "straight", base)
    with operators_in_this_thread_alone():
        assert run.train() == 0
    return run


def test_the_steps_are_those_of_their_phases(straight: Run) -> None:
    metrics = {e["step"]: e["values"] for e in straight.events_of() if e["kind"] == "metric"}
    assert metrics[4]["tokens"] == 4 * 8 * SEQ_LEN
    assert metrics[12]["tokens"] == 4 * (8 + 16) * SEQ_LEN + 4 * 8 * SEQ_LEN // 2
    assert metrics[12]["lr"] == 0.0
    ends = [e for e in straight.events_of() if e["kind"] == "phase" and e["action"] == "end"]
    assert [end["drawn"] for end in ends] == [
        {"main": 32, "docs": 0},
        {"main": 48, "docs": 16},
        {"main": 24, "docs": 8},
    ]
    kept = straight.folder / f"checkpoints/step-{BORDERS[1]:08d}/rank-0.json"
    assert json.loads(kept.read_text())["position"]["of_sources"] == [80, 16]


@pytest.mark.parametrize("step", [3, 4, 9])
def test_a_resume_within_a_phase_and_at_a_border_is_exact(
    base: Config, straight: Run, tmp_path: Path, step: int
) -> None:
    run = Run(tmp_path / "run", base)
    kept = f"checkpoints/step-{step:08d}"
    if not (straight.folder / kept).exists():
        pytest.fail(f"{kept} was pruned: {straight.steps_stored()}")
    shutil.copytree(straight.folder / kept, run.folder / kept)
    with operators_in_this_thread_alone():
        assert run.train(number=2, resume={"mode": "step", "candidates": [step]}) == 0
    expected = {key: value for key, value in straight.values_by_step().items() if key[1] > step}
    assert run.values_by_step(2) == expected
    assert_same_tensors(run.model(), straight.model())
