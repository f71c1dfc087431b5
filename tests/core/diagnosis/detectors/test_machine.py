"""What the detectors find in telemetry: GPUs that wait or are slowed, memory, disk."""

from __future__ import annotations

import math
import random

import pytest
from support.core.metric_series import FIRST_T, all_codes

from trainer_runtime.core.diagnosis.detectors import Detectors, Settings
from trainer_runtime.core.protocol.finding import Finding

BUSY = {
    "gpu_util": 97.0,
    "gpu_mem_gib": 60.0,
    "gpu_power_w": 650.0,
    "gpu_temp_c": 62.0,
    "gpu_clock_mhz": 1755.0,
    "gpu_throttle": 0.0,
    "cpu_util": 12.0,
    "host_mem_gib": 40.0,
    "disk_free_gib": 900.0,
    "net_mib_s": 0.2,
}


def sampled(
    values: dict[str, float],
    settings: Settings | None = None,
    *,
    minutes: int = 10,
    **metrics: float,
) -> Detectors:
    """A run whose machine was busy for ten minutes, then sampled `values`."""
    detectors = Detectors(settings)
    for minute in range(10 + minutes):
        for key, value in {"loss": 3.0 - minute / 100, **metrics}.items():
            detectors.point(key, minute + 1, FIRST_T + 60 * minute, value)
        for sixth in range(6):
            t = FIRST_T + 60 * minute + 10 * sixth
            detectors.sample(t, BUSY if minute < 10 else BUSY | values)
    return detectors


def only(detectors: Detectors) -> Finding:
    found = detectors.findings()
    assert len(found) == 1, all_codes(detectors)
    return found[0]


def test_a_busy_machine_raises_nothing() -> None:
    assert all_codes(sampled({})) == []
    assert all_codes(sampled({"gpu_throttle": 1.0})) == []  # at its power cap by design


@pytest.mark.parametrize(
    "values, metrics, words",
    [
        ({"gpu_util": 30.0}, {"data_time_share": 0.6}, "waits for data"),
        ({"gpu_util": 40.0}, {"comm_time_share": 0.5}, "waits for other ranks"),
        ({"gpu_util": 40.0, "cpu_util": 97.0}, {}, "waits for data"),
        ({"gpu_util": 40.0, "cpu_util": 97.0}, {"data_time_share": 0.01}, "The host"),
        ({"gpu_util": 40.0, "net_mib_s": 900.0}, {}, "The network is busy"),
        ({"gpu_util": 20.0}, {"data_time_share": 0.01}, "The host"),
    ],
)
def test_an_idle_gpu_is_reported_with_its_cause(
    values: dict[str, float], metrics: dict[str, float], words: str
) -> None:
    finding = only(sampled(values, **metrics))
    assert (finding.code, finding.severity) == ("gpu_idle", "warning")
    assert words in finding.explanation
    assert f"GPU utilisation {values['gpu_util']:.0f} %" in finding.evidence


def test_under_80_per_cent_is_for_information_and_a_larger_micro_batch_is_offered() -> None:
    settings = Settings(
        config={"framework": "nanogpt", "batch": {"micro_batch": 8, "accumulation": 4}}
    )
    finding = only(sampled({"gpu_util": 70.0}, settings, data_time_share=0.01))
    assert finding.severity == "info"
    (patch,) = finding.patches
    assert patch.set == {"batch.micro_batch": 16, "batch.accumulation": 2} and patch.keeps_batch


def test_one_gpu_of_several_that_lags_is_named() -> None:
    values = {"gpu_util": 88.0} | {f"gpu_util/{i}": 12.0 if i == 5 else 99.0 for i in range(8)}
    finding = only(sampled(values))
    assert finding.code == "gpu_idle" and "GPU 5 alone: 12 %" in finding.evidence


def test_an_a100_below_40_per_cent_mfu_is_reported() -> None:
    a100 = Settings(peak_flops=312e12)
    assert only(sampled({}, a100, mfu=0.31)).severity == "info"
    assert all_codes(sampled({}, a100, mfu=0.45)) == []


@pytest.mark.parametrize(
    "values, words",
    [
        ({"gpu_throttle": 1.0, "gpu_temp_c": 88.0, "gpu_clock_mhz": 1100.0}, "It is hot"),
        ({"gpu_temp_c": 88.0, "gpu_clock_mhz": 1100.0}, "It is hot"),
        ({"gpu_throttle": 1.0, "gpu_clock_mhz": 1200.0}, "power limit"),
    ],
)
def test_a_throttled_gpu_is_reported_with_its_cause(values: dict[str, float], words: str) -> None:
    finding = only(sampled(values))
    assert (finding.code, finding.severity) == ("gpu_throttled", "warning")
    assert words in finding.explanation


def test_a_gpu_is_evaluated_only_while_steps_are_made() -> None:
    detectors = Detectors()
    for sixth in range(600):
        detectors.sample(FIRST_T + 10 * sixth, BUSY | {"gpu_util": 0.0})
    assert all_codes(detectors) == []


def test_an_idle_gpu_that_works_again_is_closed() -> None:
    detectors = sampled({"gpu_util": 30.0})
    assert only(detectors).code == "gpu_idle"
    for sixth in range(60):
        detectors.point("loss", 21 + sixth, FIRST_T + 1200 + 10 * sixth, 2.5)
        detectors.sample(FIRST_T + 1200 + 10 * sixth, BUSY)
    assert detectors.findings() == []


def hourly(key: str, series: list[float], settings: Settings | None = None) -> Detectors:
    """One key over hours: a sample every ten seconds, a new value every minute."""
    detectors = Detectors(settings)
    detectors.event("started", FIRST_T, 0, {})
    for minute, value in enumerate(series):
        detectors.point("loss", minute + 1, FIRST_T + 60 * minute, 3.0 - minute / 10_000)
        for sixth in range(6):
            detectors.sample(FIRST_T + 60 * minute + 10 * sixth, {key: value})
    return detectors


def test_a_leak_of_host_memory_is_found_and_weighed_by_the_hours_left() -> None:
    rng = random.Random(7)
    leak = [40 + minute / 20 + rng.gauss(0, 0.3) for minute in range(240)]
    assert only(hourly("host_mem_gib", leak)).severity == "info"
    finding = only(hourly("host_mem_gib", leak, Settings(host_memory_gib=64.0)))
    assert (finding.code, finding.severity) == ("memory_rising", "warning")
    assert finding.slots["gib_per_h"] == pytest.approx(3.0, abs=0.2)
    assert finding.slots["hours_left"] == pytest.approx(4.0, abs=0.5)


def test_a_leak_on_one_gpu_of_eight_is_found() -> None:
    detectors = Detectors()
    for minute in range(240):
        detectors.point("loss", minute + 1, FIRST_T + 60 * minute, 3.0 - minute / 10_000)
        used = {f"gpu_mem_gib/{i}": 50.0 + (minute / 30 if i == 3 else 0) for i in range(8)}
        used["gpu_mem_gib"] = sum(used.values()) / 8
        for sixth in range(6):
            detectors.sample(FIRST_T + 60 * minute + 10 * sixth, used)
    assert only(detectors).code == "memory_rising"


@pytest.mark.parametrize("key", ["host_mem_gib", "gpu_mem_gib"])
def test_memory_that_is_noisy_or_settles_is_no_leak(key: str) -> None:
    rng = random.Random(8)
    noisy = [40 + rng.gauss(0, 2) for _ in range(300)]
    settles = [60 - 30 * math.exp(-minute / 30) for minute in range(600)]
    saw = [40 + minute % 50 / 10 for minute in range(600)]
    for series in (noisy, settles, saw):
        assert all_codes(hourly(key, series)) == []


def test_a_filling_disk_is_reported_with_the_hours_left() -> None:
    filling = [100 - minute / 6 for minute in range(180)]
    finding = only(hourly("disk_free_gib", filling))
    assert (finding.code, finding.severity) == ("disk_filling", "warning")
    assert finding.slots["hours_left"] == pytest.approx(70 / 10, rel=0.15)


def test_checkpoints_that_come_and_go_fill_no_disk() -> None:
    kept = [100 - 5 * min(minute // 10, 3) - 5 * (minute % 10 == 0) for minute in range(600)]
    assert all_codes(hourly("disk_free_gib", [float(free) for free in kept])) == []
    sawtooth = [100.0 - 2 * (minute % 15) for minute in range(600)]
    assert all_codes(hourly("disk_free_gib", sawtooth)) == []


def test_a_run_that_ends_before_the_disk_does_is_left_alone() -> None:
    filling = [100 - minute / 6 for minute in range(180)]
    assert all_codes(hourly("disk_free_gib", filling, Settings(steps=240))) == []
    assert all_codes(hourly("disk_free_gib", filling, Settings(steps=2400))) == ["disk_filling"]


def test_a_disk_without_room_for_the_next_checkpoint_is_critical_at_once() -> None:
    config = {"framework": "nanogpt", "checkpoint": {"keep_latest": 3}}
    detectors = Detectors(Settings(config=config))
    detectors.event("checkpoint", FIRST_T, 10, {"action": "saved", "size_bytes": 4 << 30})
    detectors.sample(FIRST_T, {"disk_free_gib": 6.0})
    assert all_codes(detectors) == []
    detectors.sample(FIRST_T + 10, {"disk_free_gib": 4.5})
    finding = only(detectors)
    assert finding.severity == "critical"
    assert [patch.set for patch in finding.patches] == [{"checkpoint.keep_latest": 1}]
