"""Detectors on whole curves: no alarm on healthy ones, spikes of every size found in time."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from support.core.metric_series import (
    SCATTERS,
    all_codes,
    fed_from_log,
    feed,
    healthy,
    losses_of_log,
    public_logs,
    with_spike,
)

from trainer_runtime.core.diagnosis.detectors import Detectors

# What the rule found of each size when it was measured on 37 public curves.
RECALL = {1.15: 0.41, 1.3: 0.84, 1.6: 1.0, 2.2: 1.0, 3.5: 1.0}
_SEED = 20_260


@pytest.mark.parametrize("scatter", SCATTERS)
def test_a_healthy_curve_with_benign_blips_raises_no_alarm(scatter: float) -> None:
    rng = random.Random(f"{_SEED} {scatter}")
    detectors = feed(Detectors(), healthy(rng, 6000, scatter, blips=20))
    assert all_codes(detectors) == ["loss_outliers"]
    (found,) = detectors.findings()
    assert found.severity == "info"
    assert len(detectors.notes) > 3  # the blips are seen, and left alone


@pytest.mark.parametrize("path", public_logs(), ids=lambda path: path.name)
def test_a_public_log_raises_no_alarm(path: Path) -> None:
    assert all_codes(fed_from_log(path)) == []


@pytest.mark.parametrize("factor", RECALL)
def test_injected_spikes_are_found_as_often_as_measured(factor: float) -> None:
    found, in_time, trials = 0, 0, 100
    print(f"seed {_SEED}")
    for trial in range(trials):
        rng = random.Random(f"{_SEED} {factor} {trial}")
        losses = healthy(rng, 700, SCATTERS[trial % len(SCATTERS)])
        at, length = rng.randrange(500, 600), rng.randrange(8, 41)
        first_seen = first_finding(with_spike(losses, at, length, factor), at, at + length)
        found += first_seen is not None
        in_time += first_seen is not None and first_seen <= at + 1
    print(f"{factor} x: recall {found / trials}, {in_time / trials} at most one step late")
    assert found / trials >= RECALL[factor]
    assert in_time / trials >= (RECALL[factor] if RECALL[factor] == 1.0 else 0.8 * RECALL[factor])


@pytest.mark.skipif(not public_logs(), reason="the public logs are not beside the project")
def test_spikes_injected_into_public_curves_are_found_as_often_as_measured() -> None:
    curves = [losses for path in public_logs() if len(losses := losses_of_log(path)) > 1000]
    assert curves
    print(f"seed {_SEED}")
    for factor, least in RECALL.items():
        found, trials = 0, 60
        for trial in range(trials):
            rng = random.Random(f"{_SEED} {factor} {trial}")
            losses = rng.choice(curves)
            at, length = rng.randrange(300, len(losses) - 60), rng.randrange(8, 41)
            piece = losses[at - 200 : at + length]
            first_seen = first_finding(with_spike(piece, 200, length, factor), 200, 200 + length)
            found += first_seen is not None
        print(f"{factor} x: recall {found / trials}")
        assert found / trials >= least


def first_finding(losses: list[float], begin: int, end: int) -> int | None:
    """At which index within the spike it was found first."""
    detectors = feed(Detectors(), losses[:begin], first_step=0)
    assert all_codes(detectors) == []
    for step in range(begin, end):
        feed(detectors, [losses[step]], first_step=step)
        if "loss_spike" in all_codes(detectors):
            return step
    return None
