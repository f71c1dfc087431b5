from __future__ import annotations

import os
from pathlib import Path

import pytest
from support.runs.running_run import wait_until

from trainer_runtime.host.watch.telemetry import Telemetry, parse_gpus

# As nvidia-smi --format=csv,noheader,nounits prints them.
TWO_H100 = """\
0, 98, 70312, 655.42, 61, 1980, 0x0000000000000004
1, 96, 69120, 648.10, 58, 1965, 0x0000000000000000
"""
IDLE_T4 = "0, 0, 3, 9.41, 38, 300, 0x0000000000000001\n"
UNIFIED_MEMORY = "0, 12, [N/A], 11.20, 44, 2418, 0x0000000000000000\n"
MIG = "0, [N/A], 41200, 310.55, 51, 1410, 0x0000000000000020\n"
OLD_CARD = "0, [Not Supported], 1024, [N/A], 60, [N/A], [N/A]\n"


def test_each_gpu_stands_by_itself_and_all_together_as_their_mean() -> None:
    values = parse_gpus(TWO_H100)
    assert (values["gpu_util/0"], values["gpu_util/1"], values["gpu_util"]) == (98.0, 96.0, 97.0)
    assert values["gpu_mem_gib/0"] == pytest.approx(68.664, abs=1e-3)
    assert values["gpu_mem_gib/1"] == 67.5
    assert values["gpu_power_w"] == pytest.approx(651.76)
    assert (values["gpu_temp_c/1"], values["gpu_clock_mhz/1"]) == (58.0, 1965.0)


def test_a_power_cap_throttles_and_idling_does_not() -> None:
    values = parse_gpus(TWO_H100)
    assert (values["gpu_throttle/0"], values["gpu_throttle/1"], values["gpu_throttle"]) == (
        1,
        0,
        0.5,
    )
    assert parse_gpus(IDLE_T4)["gpu_throttle/0"] == 0.0
    assert parse_gpus(MIG)["gpu_throttle/0"] == 1.0


@pytest.mark.parametrize(
    ("output", "missing"),
    [
        (UNIFIED_MEMORY, {"gpu_mem_gib"}),
        (MIG, {"gpu_util"}),
        (OLD_CARD, {"gpu_util", "gpu_power_w", "gpu_clock_mhz", "gpu_throttle"}),
    ],
)
def test_values_that_a_card_does_not_report_are_left_out(output: str, missing: set[str]) -> None:
    values = parse_gpus(output)
    whole = {
        "gpu_util",
        "gpu_mem_gib",
        "gpu_power_w",
        "gpu_temp_c",
        "gpu_clock_mhz",
        "gpu_throttle",
    }
    assert {key for key in values if "/" not in key} == whole - missing
    assert all(isinstance(value, float) for value in values.values())


@pytest.mark.parametrize(
    "output",
    [
        "",
        "No devices were found\n",
        "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.\n",
        "Unable to determine the device handle for GPU0000:01:00.0: Unknown Error\n",
        "0, 98, 70312\n",
    ],
)
def test_an_answer_without_gpus_gives_no_figures(output: str) -> None:
    assert parse_gpus(output) == {}


def test_a_sample_has_memory_and_disk_and_from_the_second_on_rates(tmp_path: Path) -> None:
    telemetry = Telemetry(tmp_path)
    first = telemetry.sample(100.0)
    assert first["host_mem_gib"] > 0 and first["disk_free_gib"] > 0
    assert "cpu_util" not in first
    second = _with_rates(telemetry)
    assert 0.0 <= second["cpu_util"] <= 100.0
    assert second["net_mib_s"] >= 0.0
    telemetry.close()


def _with_rates(telemetry: Telemetry) -> dict[str, float]:
    times = iter(range(200, 100_000, 10))

    def sampled() -> dict[str, float] | None:
        found = telemetry.sample(float(next(times)))
        return found if "cpu_util" in found else None

    found: dict[str, float] = wait_until(sampled, "the processor's counters move")
    return found


def test_gpu_figures_come_with_a_later_sample_and_a_hanging_driver_hangs_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    programs = tmp_path / "bin"
    programs.mkdir()
    driver = programs / "nvidia-smi"
    driver.write_text(f"#!/bin/sh\n[ -e {programs}/hang ] && exec sleep 600\ncat {programs}/rows\n")
    driver.chmod(0o755)
    (programs / "rows").write_text(TWO_H100)
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    telemetry = Telemetry(tmp_path)
    assert "gpu_util" not in telemetry.sample(1.0)
    wait_until(lambda: telemetry.sample(2.0).get("gpu_util") == 97.0, "the figures")
    (programs / "hang").touch()
    (programs / "rows").write_text(IDLE_T4)
    for now in range(3, 8):
        telemetry.sample(float(now))
    telemetry.close()
