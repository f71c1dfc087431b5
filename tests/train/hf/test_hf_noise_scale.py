"""The gradient noise scale of HF Trainer's pretraining, whose loop accumulates by itself."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.host.run_configs import changed
from support.host.tiny_training import RunFolder, prepared_config
from support.train.hf_attempts import Attempts
from support.train.operator_threads import operators_in_this_thread_alone

from trainer_runtime.train.loop.noise_scale import EVERY

pytestmark = pytest.mark.engine


def test_it_is_reported_from_the_fifth_measurement_on(tmp_path: Path) -> None:
    config = prepared_config(tmp_path, "hf", Path(__file__).read_bytes() * 16)
    batch = {"micro_batch": 2, "accumulation": 4, "tokens": 8 * config["data"]["seq_len"]}
    run = RunFolder(tmp_path / "run", changed(config, {"batch": batch, "steps": 7 * EVERY}))
    attempt = Attempts()
    with operators_in_this_thread_alone():
        assert attempt(run) == 0, attempt.errors
    reported = {
        event["step"]: event["values"]["noise_scale"]
        for event in run.events()
        if event["kind"] == "metric" and "noise_scale" in event["values"]
    }
    assert reported and set(reported) <= {5 * EVERY, 6 * EVERY, 7 * EVERY}
    assert all(0 < scale < 1e6 for scale in reported.values())
