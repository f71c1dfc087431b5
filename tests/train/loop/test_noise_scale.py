"""The gradient noise scale: its estimate, and what a real training reports of it."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch
from support.host.run_configs import changed
from support.host.tiny_training import RunFolder
from support.train.early_end import take_checkpoint
from support.train.nanogpt_attempts import config_on, train_here
from support.train.noise_scales import MIDDLE, STEPS, noise_scales

from trainer_runtime.train.loop.noise_scale import Estimate


@pytest.mark.parametrize(
    ("signal", "noise", "small", "big"),
    [(1.0, 64.0, 8, 32), (0.25, 1e4, 64, 4096), (3.0, 0.5, 1, 2)],
)
def test_the_estimate_is_exact_where_the_norms_are_the_expected_ones(
    signal: float, noise: float, small: int, big: int
) -> None:
    norms = [math.sqrt(signal + noise / tokens) for tokens in (small, big)]
    estimate = Estimate.of(small, norms[0], big, norms[1])
    assert estimate.signal == pytest.approx(signal)
    assert estimate.noise == pytest.approx(noise)


def test_the_mean_of_many_estimates_is_the_noise_scale_of_the_samples() -> None:
    generator = torch.Generator().manual_seed(5)
    mean, deviation = torch.full((50,), 0.2), 2.0
    estimates = []
    for _ in range(2000):
        samples = mean + deviation * torch.randn(32, 50, generator=generator)
        norms = (float(samples[:8].mean(0).norm()), float(samples.mean(0).norm()))
        estimates.append(Estimate.of(8, norms[0], 32, norms[1]))
    noise = sum(estimate.noise for estimate in estimates)
    signal = sum(estimate.signal for estimate in estimates)
    assert noise / signal == pytest.approx(50 * deviation**2 / float(mean.norm()) ** 2, rel=0.1)


@pytest.mark.parametrize(("micro_batch", "accumulation"), [(2, 4), (8, 1)])
def test_a_training_reports_it_where_a_step_has_several_micro_batches(
    tmp_path: Path, micro_batch: int, accumulation: int
) -> None:
    # It stays where it begins: there all gradients point alike, whatever the text.
    config = config_on(tmp_path, __file__, "gpt2", optimizer__lr=1e-6)
    seq_len = config["data"]["seq_len"]
    batch = {"micro_batch": micro_batch, "accumulation": accumulation}
    batch["tokens"] = micro_batch * accumulation * seq_len
    changes = {"batch": batch, "steps": STEPS, "checkpoint__every": MIDDLE}
    run = RunFolder(tmp_path / "run", changed(config, changes))
    assert train_here(run) == 0
    values = {event["step"]: event["values"] for event in run.events() if event["kind"] == "metric"}
    assert all("micro_norm" not in of_step for of_step in values.values())
    reported = noise_scales(run.events())
    assert bool(reported) == (accumulation > 1)
    saved = [event["metrics"] for event in run.events() if event["kind"] == "checkpoint"]
    assert saved and not any("noise" in key for metrics in saved for key in metrics)
    resumed = RunFolder(tmp_path / "resumed", run.config)
    take_checkpoint(run.folder, resumed.folder, MIDDLE)
    assert train_here(resumed, resumed.attempt_config(number=2)) == 0
    assert noise_scales(resumed.events("attempts/2")) == reported
