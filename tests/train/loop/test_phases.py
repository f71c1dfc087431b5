"""The real train.py by a curriculum: borders, verdicts, and kills at any moment."""

from __future__ import annotations

import os
import random
import shutil
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from support.host.run_configs import Config, changed
from support.host.tiny_training import LOSSES, SEQ_LEN, TinyRun, prepared_config
from support.train.killed_runs import kill
from support.train.nanogpt_attempts import train_here

from trainer_runtime.core.files.manifest import read

KILLS = int(os.environ.get("TRAINMASTER_FAULT_KILLS", "3"))
LIMIT = {"metric": "val_loss/main", "not_worse_than_start_pct": 50.0}
PHASES = [
    {"name": "base", "steps": 12, "sequences": 8, "sources": {"main": 1.0}},
    {
        "name": "mixed",
        "steps": 12,
        "sequences": 16,
        "sources": {"main": 0.75, "other": 0.25},
        "success": LIMIT,
        "on_miss": "stop",
    },
    {"name": "short", "steps": 8, "sequences": 16, "seq_len": SEQ_LEN // 2},
    {"name": "anneal", "steps": 8, "lr": {"kind": "linear", "from": None, "to": 0.0}},
]
BORDERS = [12, 24, 32, 40]


def with_phases(config: Config, *phases: dict[str, Any]) -> Config:
    whole = {"sequences": 8, "seq_len": SEQ_LEN, "on_miss": "warn"}
    listed = [{**whole, **phase} for phase in phases]
    return {**config, "phases": listed, "steps": sum(phase["steps"] for phase in listed)}


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Config]:
    folder = tmp_path_factory.mktemp("phases")
    text = Path(__file__).read_bytes() * 4
    config = prepared_config(folder, "nanogpt", text, other=text[::-1])
    return folder, changed(config, {"checkpoint__every": 5, "checkpoint__keep_latest": 2})


@pytest.fixture(scope="module")
def undisturbed(base: tuple[Path, Config]) -> Iterator[TinyRun]:
    run = TinyRun(base[0] / "undisturbed", with_phases(base[1], *PHASES))
    code, _, errors = run.train()
    assert (code, errors) == (0, "")
    yield run
    shutil.rmtree(run.folder)


@pytest.fixture
def make_run(tmp_path: Path, base: tuple[Path, Config]) -> Callable[..., TinyRun]:
    def make(*phases: dict[str, Any]) -> TinyRun:
        return TinyRun(tmp_path / "run", with_phases(base[1], *phases))

    return make


def test_each_border_is_evaluated_judged_and_kept_under_its_phases_name(
    undisturbed: TinyRun,
) -> None:
    events = undisturbed.events()
    ends = [e for e in events if e["kind"] == "phase" and e["action"] == "end"]
    assert [(end["name"], end["step"]) for end in ends] == [
        (phase["name"], step) for phase, step in zip(PHASES, BORDERS, strict=True)
    ]
    begins = [e for e in events if e["kind"] == "phase" and e["action"] == "begin"]
    assert [begin["step"] for begin in begins] == [0, *BORDERS[:-1]]
    assert ends[1]["met"] is True and ends[1]["limit"] == pytest.approx(ends[1]["at_start"] * 1.5)
    assert set(BORDERS) <= {event["step"] for event in events if event["kind"] == "eval"}
    assert set(BORDERS) <= set(undisturbed.steps_stored())
    for phase, step in zip(PHASES, BORDERS, strict=True):
        tags = read(undisturbed.folder / f"checkpoints/step-{step:08d}").tags
        assert f"phase:{phase['name']}" in tags


def test_tokens_rates_and_batches_are_those_of_the_phase(undisturbed: TinyRun) -> None:
    metrics = {e["step"]: e["values"] for e in undisturbed.events() if e["kind"] == "metric"}
    assert metrics[12]["tokens"] == 12 * 8 * SEQ_LEN
    assert metrics[24]["tokens"] == 12 * 24 * SEQ_LEN
    assert metrics[32]["tokens"] == 12 * 24 * SEQ_LEN + 8 * 16 * SEQ_LEN // 2
    assert metrics[33]["lr"] == pytest.approx(metrics[32]["lr"] * 7 / 8)
    assert metrics[40]["lr"] == 0.0


@pytest.mark.long  # test_train_script kills too
def test_killed_runs_equal_the_undisturbed_one_bit_for_bit_also_at_borders(
    undisturbed: TinyRun, tmp_path: Path, base: tuple[Path, Config]
) -> None:
    """So many kills hit; where a run comes to its end between two of them, another begins."""
    seed = int(os.environ.get("TRAINMASTER_FAULT_SEED") or random.SystemRandom().randrange(10**6))
    moments, kills = random.Random(seed), 0
    print(f"seed {seed}")
    while kills < KILLS:
        run = TinyRun(tmp_path / f"killed-{kills}", with_phases(base[1], *PHASES))
        while kills < KILLS and not (run.folder / "final").exists():
            code = kill(run, moments, BORDERS)
            assert code in (0, -signal.SIGKILL)
            kills += code != 0
        assert run.train()[0] == 0
        assert run.values_by_step(*LOSSES) == undisturbed.values_by_step(*LOSSES)
        assert run.weights() == undisturbed.weights()
        shutil.rmtree(run.folder)


def test_a_missed_phase_is_saved_before_the_supervisor_acts(
    make_run: Callable[..., TinyRun],
) -> None:
    success = {"metric": "val_loss", "below": 0.01}
    run = make_run(
        {"name": "hard", "steps": 4, "success": success, "on_miss": "stop"},
        {"name": "rest", "steps": 4},
    )
    assert train_here(run) == 78
    last = run.events()[-1]
    ended = [event for event in run.events() if event["kind"] == "phase"][-1]
    assert (ended["name"], ended["met"], ended["on_miss"]) == ("hard", False, "stop")
    assert (last["kind"], last["action"], last["step"]) == ("checkpoint", "verified", 4)
    # Killed before the supervisor had acted, it draws the same verdict again.
    assert train_here(run, run.attempt_config(number=2, reason="killed")) == 78
    assert train_here(run, run.attempt_config(number=3, reason="resume")) == 0


def test_a_missed_phase_that_only_warns_continues(make_run: Callable[..., TinyRun]) -> None:
    success = {"metric": "val_loss", "below": 0.01}
    run = make_run({"name": "hard", "steps": 3, "success": success}, {"name": "rest", "steps": 3})
    assert train_here(run) == 0
    ended = [event for event in run.events() if event["kind"] == "phase"][1]
    assert (ended["name"], ended["met"]) == ("hard", False)


def test_a_first_phase_is_compared_with_an_evaluation_before_its_first_step(
    make_run: Callable[..., TinyRun],
) -> None:
    run = make_run({"name": "only", "steps": 4, "success": LIMIT, "on_miss": "rollback"})
    assert train_here(run) == 0
    start, *_, end = [e for e in run.events() if e["kind"] in ("eval", "phase")][1:]
    assert (start["kind"], start["step"]) == ("eval", 0)
    assert end["at_start"] == start["values"]["val_loss/main"]
