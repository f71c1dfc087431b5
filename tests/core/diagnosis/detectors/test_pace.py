"""What the detectors find in times: stalls, slowness, checkpoints that are overdue."""

from __future__ import annotations

import random

import pytest
from support.core.metric_series import FIRST_T, all_codes, codes

from trainer_runtime.core.diagnosis.detectors import Detectors, Settings

CHECK_S = 10.0


def stepping(
    detectors: Detectors, first: int, last: int, t: float, every_s: float = 1.1, **values: float
) -> float:
    """Steps from `first` to `last`, with a check every ten seconds; the time after them."""
    checked = t
    for step in range(first, last + 1):
        t += every_s
        for key, value in {"loss": 3.0 - step / 10_000, **values}.items():
            detectors.point(key, step, t, value)
        if t - checked >= CHECK_S:
            detectors.tick(t)
            checked = t
    return t


def silence(detectors: Detectors, t: float, seconds: float) -> list[str]:
    """Check every ten seconds while nothing is logged; the codes open at the end."""
    found: list[str] = []
    for check in range(1, int(seconds / CHECK_S) + 1):
        found = codes(detectors.tick(t + check * CHECK_S))
    return found


def test_two_minutes_without_a_step_are_a_stall_of_a_quick_run() -> None:
    detectors = Detectors()
    t = stepping(detectors, 1, 100, FIRST_T)
    assert silence(detectors, t, 110) == []
    assert silence(detectors, t + 110, 40) == ["stall"]
    stalled = detectors.findings()[0]
    assert (stalled.step, stalled.severity) == (100, "warning")
    silence(detectors, t + 150, 600)
    assert detectors.findings()[0].severity == "critical"
    assert detectors.findings()[0].id == stalled.id
    stepping(detectors, 101, 101, t + 800)
    assert detectors.findings() == []


def test_a_slow_run_is_given_ten_times_its_own_pace() -> None:
    detectors = Detectors()
    t = stepping(detectors, 1, 60, FIRST_T, every_s=60.0)
    assert silence(detectors, t, 590) == []
    assert silence(detectors, t + 590, 60) == ["stall"]


def test_an_evaluation_of_35_s_against_steps_of_1_1_s_is_no_stall() -> None:
    detectors = Detectors(Settings(eval_every_steps=50))
    t = FIRST_T
    for lap in range(10):
        t = stepping(detectors, 50 * lap + 1, 50 * lap + 50, t)
        assert silence(detectors, t, 35) == []
        t += 35
        detectors.point("val_loss", 50 * lap + 50, t, 3.0)
        detectors.event("eval", t, 50 * lap + 50)
    assert all_codes(detectors) == []


def test_a_long_first_evaluation_has_its_grace_and_a_hang_in_it_is_found_all_the_same() -> None:
    detectors = Detectors(Settings(eval_every_steps=100))
    t = stepping(detectors, 1, 100, FIRST_T)
    assert silence(detectors, t, 550) == []
    assert silence(detectors, t + 550, 100) == ["stall"]


def test_a_pause_that_was_long_before_may_be_so_again() -> None:
    detectors = Detectors(Settings(checkpoint_every_steps=100))
    t = stepping(detectors, 1, 100, FIRST_T)
    assert silence(detectors, t, 400) == []
    detectors.event("checkpoint", t + 400, 100, {"action": "saved"})
    t = stepping(detectors, 101, 200, t + 400)
    assert silence(detectors, t, 1100) == []
    assert silence(detectors, t + 1100, 200) == ["stall"]


def test_pauses_of_a_run_without_configuration_are_learnt() -> None:
    detectors = Detectors()
    t = FIRST_T
    for lap in range(6):
        t = stepping(detectors, 100 * lap + 1, 100 * lap + 100, t)
        found = silence(detectors, t, 300)
        assert found == (
            [] if lap > 1 else ["stall"]
        )  # after two of them the next due step is known
        t += 300
        detectors.event("checkpoint", t, 100 * lap + 100)
    t = stepping(detectors, 601, 650, t)
    assert silence(detectors, t, 140) == ["stall"]  # where none is due


@pytest.mark.parametrize("jump_s", [3600.0, -3600.0, 86_400.0 * 365])
def test_a_clock_that_jumps_makes_no_stall_and_hides_none(jump_s: float) -> None:
    detectors = Detectors()
    t = stepping(detectors, 1, 300, FIRST_T) + jump_s
    assert codes(detectors.tick(t)) == []
    assert silence(detectors, t, 50) == []
    assert silence(detectors, t + 50, 140) == ["stall"]
    t = stepping(detectors, 301, 400, t + 200)
    assert all_codes(detectors) == ["stall"]  # the true one, over


def test_a_machine_that_slept_makes_no_stall() -> None:
    detectors = Detectors()
    t = stepping(detectors, 1, 100, FIRST_T)
    assert codes(detectors.tick(t + 1)) == []
    assert codes(detectors.tick(t + 30_000)) == []
    stepping(detectors, 101, 200, t + 30_001)
    assert all_codes(detectors) == []


def test_samples_that_come_in_after_the_points_they_stood_beside_make_no_stall() -> None:
    detectors = Detectors()
    for step in range(1, 1000):
        detectors.point("loss", step, FIRST_T + step, 3.0 - step / 10_000)
    for check in range(1, 100):
        detectors.sample(FIRST_T + check * CHECK_S, {"cpu_util": 10.0})
    assert all_codes(detectors) == []


def test_nothing_stalls_before_the_first_step_or_after_the_end() -> None:
    detectors = Detectors()
    detectors.tick(FIRST_T)
    assert silence(detectors, FIRST_T, 4000) == []  # nothing was started
    detectors.event("started", FIRST_T, 0, {"target_step": 100})
    assert silence(detectors, FIRST_T + 4000, 1700) == []  # loading, compiling
    assert silence(detectors, FIRST_T + 5700, 200) == ["stall"]
    t = stepping(detectors, 1, 100, FIRST_T + 6000)
    detectors.event("completed", t, 100)
    assert silence(detectors, t, 4000) == []


def test_a_throughput_drop_of_a_fifth_is_reported_with_its_cause() -> None:
    detectors = Detectors()
    rng = random.Random(5)
    for step in range(1, 200):
        slow = step >= 100
        detectors.point("data_time_share", step, None, 0.3 if slow else 0.02)
        tokens = (80_000 if slow else 100_000) * rng.gauss(1, 0.01)
        detectors.point("tokens_per_s", step, None, tokens)
    (finding,) = detectors.findings()
    assert (finding.code, finding.step) == ("throughput_drop", 100)
    assert finding.slots["drop"] == pytest.approx(0.2, abs=0.02)
    assert "waits for data" in finding.explanation


def test_points_after_an_evaluation_and_four_slow_ones_are_no_drop() -> None:
    detectors = Detectors()
    for step in range(1, 400):
        after_eval = step % 10 == 1
        slow = 200 <= step < 204
        detectors.point("mfu", step, None, 0.05 if after_eval else 0.3 if slow else 0.4)
        if step % 10 == 0:
            detectors.point("val_loss", step, None, 3.0 - step / 1000)
    assert all_codes(detectors) == []


def test_a_moment_of_slowness_of_a_quick_run_is_no_drop() -> None:
    detectors = Detectors()
    for step in range(1, 1000):
        slow = 500 <= step < 540
        t = FIRST_T + step / 20
        detectors.point("tokens_per_s", step, t, (10 if slow else 100) + step % 3)
    assert all_codes(detectors) == []


def test_a_noisy_machine_makes_no_drop() -> None:
    rng = random.Random(6)
    detectors = Detectors()
    for step in range(1, 5000):
        detectors.point("step_time_s", step, None, 0.1 * rng.lognormvariate(0, 0.15))
    assert all_codes(detectors) == []


def test_a_drop_that_is_over_is_closed() -> None:
    detectors = Detectors()
    for step in range(1, 300):
        speed = 80.0 if 100 <= step < 150 else 100.0
        detectors.point("tokens_per_s", step, None, speed + step % 3)
    assert detectors.findings() == [] and all_codes(detectors) == ["throughput_drop"]


@pytest.mark.parametrize(
    "settings, overdue_at",
    [
        (Settings(checkpoint_every_steps=100), 401),
        (Settings(checkpoint_every_s=110.0), 565),  # 2 x 110 s and 3 min of work, from step 200 on
        (Settings(), 501),  # learnt: three times the 100 steps
    ],
)
def test_an_overdue_checkpoint_is_reported(settings: Settings, overdue_at: int) -> None:
    detectors = Detectors(settings)
    detectors.event("started", FIRST_T, -100, {})
    t = FIRST_T
    for step in (0, 100, 200):
        t = stepping(detectors, step - 99, step, t)
        detectors.event("checkpoint", t, step, {"action": "saved"})
    t = stepping(detectors, 201, overdue_at - 2, t)
    assert all_codes(detectors) == []
    t = stepping(detectors, overdue_at - 1, overdue_at + 1, t)
    (finding,) = detectors.findings()
    assert (finding.code, finding.severity, finding.step) == ("checkpoint_overdue", "warning", 200)
    detectors.event("checkpoint", t, overdue_at + 1, {"action": "saved"})
    assert detectors.findings() == []


def test_checkpoints_that_match_nothing_are_a_finding_until_one_is_saved() -> None:
    detectors = Detectors(Settings(checkpoint_every_steps=10))
    detectors.event("started", FIRST_T, 0, {})
    t = stepping(detectors, 1, 15, FIRST_T)
    files = {"pattern": "ckpts/*.pt", "files": ["out/a.pt", "out/\x1b[31mb.pt"]}
    detectors.event("decision", t, 15, {"what": "checkpoints_unmatched", **files})
    t = stepping(detectors, 16, 60, t)
    (finding,) = detectors.findings()  # and not `checkpoint_overdue`, which it explains
    assert (finding.code, finding.severity, finding.step) == (
        "checkpoints_unmatched",
        "warning",
        15,
    )
    assert finding.evidence == (
        "script.checkpoints.path is ckpts/*.pt",
        "written since the start: out/a.pt out/b.pt",
    )
    detectors.event("checkpoint", t, 60, {"action": "saved"})
    assert detectors.findings() == []


def test_what_the_trainer_decided_itself_about_checkpoints_counts() -> None:
    detectors = Detectors(Settings(checkpoint_every_s=60.0))
    detectors.event("started", FIRST_T, 0, {})
    detectors.event("decision", FIRST_T, None, {"what": "checkpoint_every", "value": "30m"})
    stepping(detectors, 1, 1000, FIRST_T)
    assert all_codes(detectors) == []
