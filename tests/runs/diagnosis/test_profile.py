"""A profile on request: what a running trainer answers, what is advised by it, and refusals."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from support.runs.light_run import light_spec
from support.runs.running_run import LONGEST_S, CommandLine, pace, small_spec

from trainer_runtime.core.protocol.profile import (
    PROFILE_REQUEST,
    TRACE,
    Kernels,
    OperatorTime,
    Profile,
)
from trainmaster.runs.diagnosis.profile_report import bottlenecks

ASKED = ("--speed", "--profile")


@pytest.mark.slow
def test_a_running_training_is_profiled_and_continues(command: CommandLine, tmp_path: Path) -> None:
    spec = small_spec(tmp_path, steps="100000", env=pace(tmp_path))
    run = command("launch", spec)["run_id"]
    command("wait", run, "--until", "step:3", "--timeout", str(LONGEST_S))
    unasked = command("diagnose", run, "--speed")["speed"]
    assert "profile" not in unasked and "--speed --profile" in unasked["notes"][-1]
    timeout = ("--timeout", str(LONGEST_S))
    report = command("diagnose", run, *ASKED, "--keep-trace", *timeout)["speed"]
    profile = report["profile"]
    assert profile["steps"] == 10 and profile["step"] > 3 and profile["added_s"] > 0
    assert sum(profile["host"].values()) == pytest.approx(1.0, abs=0.03)
    # The pace sleeps in Python, outside of all operators.
    assert profile["host"]["outside"] > 0.3 and "in no operator" in profile["advice"][0]
    assert profile["operators"][0]["name"].startswith(("aten::", "Optimizer.", "autograd::"))
    fetched = command("fetch", run, f"attempts/1/{TRACE}", str(tmp_path / "brought"))
    assert fetched["files"] == 1 and f"attempts/1/{TRACE}" in profile["trace"]
    (trace,) = (tmp_path / "brought").rglob(TRACE)
    assert json.loads(gzip.decompress(trace.read_bytes()))["traceEvents"]
    after = command("status", run)["step"]
    until = f"step:{after + 20}"
    assert command("wait", run, "--until", until, *timeout)["event"] == until
    command("stop", run)
    command("wait", run, "--until", "end", "--timeout", str(LONGEST_S))
    assert command("diagnose", run, "--speed")["speed"]["profile"] == profile
    assert command("diagnose", run, *ASKED, code=1)["error"]["code"] == "RUN_ENDED"


def test_a_trainer_that_does_not_answer_is_said_to_and_may_still(
    command: CommandLine, tmp_path: Path
) -> None:
    env = '{TRAINMASTER_STEP_S: "0.05"}'
    run = command("launch", small_spec(tmp_path, steps="100000", host="debug", env=env))["run_id"]
    command("wait", run, "--until", "step:2", "--timeout", "60")
    error = command("diagnose", run, *ASKED, "--timeout", "1", code=1)["error"]
    assert error["code"] == "NOT_PROFILED" and error["retryable"]
    assert "has not answered within 1 s" in error["message"]
    assert f"diagnose {run} --speed" in error["fix"]
    folder = command.home / "debug" / "runs" / run
    assert json.loads((folder / PROFILE_REQUEST).read_text())["attempt"] == 1
    command("stop", run)


def test_a_program_is_refused_with_what_profiles_it(command: CommandLine, tmp_path: Path) -> None:
    run = command("launch", light_spec(tmp_path, "--step-s", "0.02"))["run_id"]
    error = command("diagnose", run, *ASKED, code=1)["error"]
    assert error["code"] == "NOT_PROFILED" and "program's own" in error["message"]
    assert "py-spy record" in error["fix"] and "torch.profiler" in error["fix"]
    command("wait", run, "--until", "end", "--timeout", str(LONGEST_S))


def test_a_profile_of_no_run_is_an_error(command: CommandLine) -> None:
    stated = ("--params", "7B", "--gpus", "a100:8", "--tokens-per-s", "9")
    for words in (("--speed", "--profile", *stated), ("RUN", "--profile"), ("RUN", "--keep-trace")):
        error = command("diagnose", *words, code=2)["error"]
        assert error["code"] == "BAD_ARGUMENT" and "RUN --speed --profile" in error["message"]


_BUSY = {"forward": 0.3, "backward": 0.55, "optimizer": 0.05, "idle": 0.05}


@pytest.mark.parametrize(
    ("measured", "first", "changes"),
    [
        ({"host": {"data": 0.34, "forward": 0.3}}, "data.prepare", ()),
        ({"host": {"outside": 0.6}}, "in Python between them", ("compile", "double_micro_batch")),
        (
            {"gpu": {**_BUSY, "idle": 0.4}, "kernels": Kernels(1840, 6.0, 4.0)},
            "compute.compile joins them",
            ("compile", "double_micro_batch"),
        ),
        (
            {"gpu": {**_BUSY, "idle": 0.4}, "kernels": Kernels(90, 400.0, 80.0)},
            "the host holds it up",
            (),
        ),
        (
            {"gpu": {**_BUSY, "communication": 0.3}, "kernels": Kernels(90, 400.0, 1.0)},
            "Exchange between ranks takes 30 %",
            ("double_micro_batch",),
        ),
        ({"gpu": {**_BUSY, "copies": 0.2}}, "Copies take 20 %", ()),
        ({"gpu": {**_BUSY, "optimizer": 0.3}}, "The optimizer takes 30 %", ()),
        ({"gpu": _BUSY, "attention": 0.4}, "`model.attention: sdpa`", ()),
    ],
)
def test_what_takes_the_time_decides_what_is_advised(
    measured: dict[str, Any], first: str, changes: tuple[str, ...]
) -> None:
    config = {"model": {"attention": "eager"}}
    (noticed,) = bottlenecks(Profile("p", **measured), config)
    assert first in noticed.text and noticed.changes == changes


def test_where_nothing_stands_out_nothing_is_advised() -> None:
    operators = (OperatorTime("aten::mm", 0.8, 40.0, 12.0),)
    profile = Profile("p", gpu=_BUSY, attention=0.4, operators=operators)
    assert bottlenecks(profile, {"model": {"attention": "sdpa"}}) == []
