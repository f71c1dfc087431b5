"""A profile of ten steps of nanogpt's script, which changes nothing of what is trained."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest
from support.host.run_configs import Config
from support.host.tiny_training import LOSSES, RunFolder
from support.train import profiled
from support.train.nanogpt_attempts import config_on, maker, train_here

from trainer_runtime.core.protocol.profile import PROFILE, TRACE


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Config:
    changes = {"steps": 16, "eval": {"every_steps": 6, "batches": 2}}
    return config_on(tmp_path_factory.mktemp("profiled"), __file__, **changes)


@pytest.mark.slow
def test_a_profile_changes_no_loss_and_no_weight(tmp_path: Path, base: Config) -> None:
    make = maker(tmp_path, base)
    plain: RunFolder = make("plain")
    run: RunFolder = make("run")
    profiled.ask(run, keeps_trace=True)
    assert train_here(plain) == train_here(run) == 0
    assert run.values_by_step(*LOSSES) == plain.values_by_step(*LOSSES)
    assert run.weights() == plain.weights()
    (profile,) = profiled.profiles(run)
    profiled.assert_plausible(profile)
    assert json.loads((run.folder / PROFILE).read_text()) == profile
    # Two layers, two micro-batches a step; those of the evaluations between are not counted.
    attention = [one for one in profile["operators"] if "_softmax" in one["name"]]
    assert all(one["calls"] in (2.0, 4.0) for one in attention)
    trace = json.loads(gzip.decompress((run.folder / TRACE).read_bytes()))
    assert len(trace["traceEvents"]) > 1000 and profile["trace"] is True
    left = {path.name for path in run.folder.iterdir() if path.name.startswith(".")}
    assert left == set()


def test_a_request_to_another_attempt_or_without_sense_is_left_alone(
    tmp_path: Path, base: Config
) -> None:
    run: RunFolder = maker(tmp_path, base)("run", steps=4)
    profiled.ask(run, attempt=2)
    assert train_here(run) == 0
    assert profiled.profiles(run) == [] and not (run.folder / PROFILE).exists()


def test_a_training_that_ends_meanwhile_ends_in_order(tmp_path: Path, base: Config) -> None:
    run: RunFolder = maker(tmp_path, base)("run", steps=4, schedule__kind="constant")
    profiled.ask(run)
    assert train_here(run) == 0
    (profile,) = profiled.profiles(run)
    assert profile["steps"] == 2 and run.events()[-1]["kind"] == "completed"
