"""HF Trainer by a curriculum whose steps differ in mix, batch, length and rate."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support.host.run_configs import Config, changed
from support.host.tiny_training import LOSSES, SEQ_LEN, RunFolder, prepared_config
from support.plan.rendered import script_text
from support.train.curriculum import BORDERS, with_curriculum
from support.train.hf_attempts import Attempts, CrashError, crash
from support.train.operator_threads import operators_in_this_thread_alone

pytestmark = pytest.mark.engine


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Config]:
    folder = tmp_path_factory.mktemp("hf")
    main, other = Path(__file__).read_bytes() * 8, script_text("hf", weights="new").encode()
    config = with_curriculum(prepared_config(folder, "hf", main, other=other), "other")
    return folder, changed(config, {"eval__every_steps": 6, "checkpoint__every": 3})


@pytest.fixture(scope="module")
def straight(base: tuple[Path, Config]) -> RunFolder:
    run = RunFolder(base[0] / "straight", base[1])
    with operators_in_this_thread_alone():
        assert Attempts()(run) == 0
    return run


def test_the_steps_are_those_of_their_phases(straight: RunFolder) -> None:
    events = straight.events()
    steps = [e for e in events if e["kind"] == "metric" and "loss" in e["values"]]
    metrics = {e["step"]: e["values"] for e in steps}
    assert metrics[4]["tokens"] == 4 * 8 * SEQ_LEN
    assert metrics[8]["tokens"] == 4 * 24 * SEQ_LEN
    assert metrics[12]["lr"] == 0.0
    ends = [e for e in events if e["kind"] == "phase" and e["action"] == "end"]
    assert [end["step"] for end in ends] == BORDERS
    assert [end["drawn"] for end in ends] == [
        {"main": 32, "other": 0},
        {"main": 48, "other": 16},
        # A mix of its own, by the sources' weights.
        {"main": 16, "other": 16},
    ]
    assert ends[0]["met"] and ends[0]["at_start"] > ends[0]["value"]
    positions = [
        json.loads(
            (straight.folder / f"checkpoints/step-{step:08d}/data_position.json").read_text()
        )
        for step in BORDERS[:2]
    ]
    # In sequences of the length that comes next: half as long from the second border on.
    assert [position["data_position"] for position in positions] == [[32, 0], [160, 32]]


@pytest.mark.parametrize("steps", [(2, 7), (4, 10)])
def test_a_crashed_run_equals_the_undisturbed_one_bit_for_bit(
    base: tuple[Path, Config], straight: RunFolder, tmp_path: Path, steps: tuple[int, int]
) -> None:
    run, attempt = RunFolder(tmp_path / "run", base[1]), Attempts()
    with operators_in_this_thread_alone():
        for step in steps:
            with pytest.raises(CrashError):
                attempt(run, disturbance=(step, crash))
        assert attempt(run) == 0
    assert run.values_by_step(*LOSSES) == straight.values_by_step(*LOSSES)
    assert run.weights() == straight.weights()


def test_a_missed_phase_leaves_the_loop_with_its_state_saved(
    base: tuple[Path, Config], tmp_path: Path
) -> None:
    config = json.loads(json.dumps(base[1]))
    config["phases"][0] |= {"success": {"metric": "val_loss", "below": 0.1}, "on_miss": "rollback"}
    run = RunFolder(tmp_path / "run", config)
    assert Attempts()(run) == 78
    assert run.steps_stored()[-1] == BORDERS[0]
    assert [e["kind"] for e in run.events()][-1] != "completed"
