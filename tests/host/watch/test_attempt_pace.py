"""The pace of an attempt by the end of its events."""

from __future__ import annotations

from pathlib import Path

import pytest

from trainer_runtime.core.protocol.lines import encode
from trainer_runtime.host.watch.pace import last_steps, read_pace


def written(path: Path, times: list[float]) -> Path:
    lines = [
        encode(step, t, "metric", {"step": step, "values": {"loss": 1.0}})
        for step, t in enumerate(times, start=1)
    ]
    path.write_bytes(b"".join(lines))
    return path


def test_steps_that_were_read_at_once_have_the_pace_of_the_program(tmp_path: Path) -> None:
    times = [burst * 0.5 + line * 1e-5 for burst in range(10) for line in range(20)]
    pace = read_pace(written(tmp_path / "events.jsonl", times), 10.0)
    assert (pace.step, pace.usual_s) == (200, pytest.approx(0.025))
    assert pace.silent_s == pytest.approx(10.0 - times[-1], abs=1e-4)


def test_slow_steps_are_measured_each(tmp_path: Path) -> None:
    pace = read_pace(written(tmp_path / "events.jsonl", [0.0, 2.0, 4.0, 6.0, 13.0]), 14.0)
    assert (pace.usual_s, pace.recent_s) == (2.0, 7.0)


def test_a_few_fast_steps_have_a_pace_already(tmp_path: Path) -> None:
    pace = read_pace(written(tmp_path / "events.jsonl", [n * 0.02 for n in range(8)]), 0.5)
    assert pace.usual_s == pytest.approx(0.02)


def test_the_last_step_of_a_log_is_read_by_its_pattern(tmp_path: Path) -> None:
    log = tmp_path / "train.log"
    log.write_text("".join(f"~~ {step} ^ {4 - step / 10:.2f}\n" for step in range(1, 8)))
    assert last_steps(log, "~~ {step} ^ {loss}") == {0: 7}
    assert last_steps(log) == {}
