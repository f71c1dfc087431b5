"""The gradient noise scale of HF Trainer's pretraining, whose loop accumulates by itself."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.host.run_configs import changed
from support.host.tiny_training import RunFolder, prepared_config
from support.train.early_end import take_checkpoint
from support.train.hf_attempts import Attempts
from support.train.noise_scales import MIDDLE, STEPS, noise_scales
from support.train.operator_threads import operators_in_this_thread_alone

pytestmark = pytest.mark.engine


def test_it_is_reported_from_the_fifth_measurement_on_also_after_a_resume(tmp_path: Path) -> None:
    config = prepared_config(tmp_path, "hf", Path(__file__).read_bytes() * 16)
    batch = {"micro_batch": 2, "accumulation": 4, "tokens": 8 * config["data"]["seq_len"]}
    changes = {"batch": batch, "steps": STEPS, "checkpoint__every": MIDDLE}
    run, resumed = (RunFolder(tmp_path / of, changed(config, changes)) for of in ("run", "resumed"))
    attempt = Attempts()
    with operators_in_this_thread_alone():
        assert attempt(run) == 0, attempt.errors
        take_checkpoint(run.folder, resumed.folder, MIDDLE)
        assert attempt(resumed, resumed.attempt_config(number=2)) == 0, attempt.errors
    reported = noise_scales(run.events())
    assert reported
    assert noise_scales(resumed.events("attempts/2")) == reported
