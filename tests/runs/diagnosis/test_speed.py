"""How fast a training is against what it should reach, and the changes that would help."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import pytest
from support.mcp.mcp_client import answer_of, connected
from support.runs.light_run import light_spec
from support.runs.operator import Operator
from support.runs.running_run import LONGEST_S, CommandLine, small_spec

from trainer_runtime.core.config.run_config import RunConfig
from trainer_runtime.core.protocol.desired import Desired
from trainer_runtime.core.protocol.event import Event
from trainer_runtime.core.protocol.journal import Record
from trainer_runtime.core.protocol.progress import Progress
from trainer_runtime.core.protocol.states import DesiredState
from trainmaster.answers.diagnosis import SpeedReport
from trainmaster.errors.errors import StateError
from trainmaster.plan import CorpusFacts, GpuFacts, HostFacts, TorchFacts, plan
from trainmaster.plan.facts import Calibration
from trainmaster.plan.planned import Planned
from trainmaster.plan.spec import TrainingSpec
from trainmaster.runs.diagnosis.chosen_patch import chosen_patch
from trainmaster.runs.diagnosis.speed import StatedSpeed, speed_of
from trainmaster.runs.planning.plan_run import on_record
from trainmaster.store.run import Run
from trainmaster.sync.run_view import RunView

Corpora = Callable[..., CorpusFacts]


def _run_on(
    host: HostFacts, spec: TrainingSpec, corpus: CorpusFacts, share_of_planned: float
) -> RunView:
    """A run at this share of its planned speed, with a tenth of its time in saves."""
    made = plan(spec, host, corpus)
    planned = Planned(spec, host, corpus, Calibration(), made, {})
    config = {**made.config, "run_id": "r-abcdef"}
    run = Run("r-abcdef", "r", 0.0, "gpu1", planned.spec_text, config, on_record(planned), {})
    batch, tokens_per_s = RunConfig.parse(config).batch, made.estimates.tokens_per_s
    assert tokens_per_s is not None
    tokens = batch.micro_batch * batch.accumulation * run.config.data.seq_len
    step_s = tokens / tokens_per_s / share_of_planned
    progress, record = Progress(1), Record()
    described = {"tokens_per_step": tokens, "peak_flops": made.config["derived"]["peak_flops"]}
    progress.apply(Event(0, 0.0, "started", {"step": 0, "target_step": 200, **described}))
    for n in range(1, 11):
        values = {"step_time_s": step_s, "loss": 2.0}
        progress.apply(Event(n, n * step_s / 0.9, "metric", {"step": n, "values": values}))
    saved = {"action": "saved", "step": 10, "path": "", "stall_s": 10 * step_s * (1 / 0.9 - 1)}
    progress.apply(Event(11, 10 * step_s / 0.9, "checkpoint", saved))
    starting = {"attempt": 1, "generation": 1, "why": "launch", "mode": "latest", "set": {}}
    record.apply(Event(0, 0.0, "attempt_starting", {**starting, "candidates": []}))
    desired = Desired(DesiredState.RUNNING, 1)
    return RunView(run, desired, record, [progress], 10 * step_s / 0.9)


@pytest.fixture
def a100(cpu_host: HostFacts) -> HostFacts:
    gpu = GpuFacts(index=0, name="a100", memory_gib=79.2, memory_free_gib=79.2)
    torch = TorchFacts(version="2.11.0+cu130", cuda="13.0", cuda_available=True, bf16_gpu=True)
    return cpu_host.model_copy(update={"gpus": (gpu,), "torch": torch})


@pytest.fixture
def slow_run(
    make_spec: Callable[..., TrainingSpec], a100: HostFacts, one_source: Corpora
) -> RunView:
    spec = make_spec(
        "model={preset: gpt2-124m}",
        "data.seq_len=1024",
        "batch.tokens=65536",
        "precision=fp32",
        "compute.compile=false",
        "checkpoint.every=10",
    )
    half = spec.model_copy(update={"precision": "bf16"})
    return _run_on(a100, half, one_source(size_bytes=10**9, tokens=10**9), 0.5)


def _speed(operator: Operator, view: RunView, **stated: Any) -> SpeedReport:
    report = speed_of(operator.workspace, view, StatedSpeed(**stated)).speed
    assert report is not None
    return report


def test_a_run_at_half_its_planned_speed_is_reported_with_changes_by_their_gain(
    operator: Operator, slow_run: RunView
) -> None:
    report = _speed(operator, slow_run)
    assert report.mfu is not None and report.expected_mfu is not None
    low, high = report.expected_mfu
    assert report.mfu == pytest.approx((low + high) / 4, rel=0.01)
    assert "50 % slower than expected" in report.verdict
    assert report.shares["save"] == pytest.approx(0.1, abs=0.01)
    gains = {change.id: change.gain for change in report.changes}
    assert [*gains] == ["compile", "fewer_saves"]
    assert 1.1 < gains["compile"] < 1.6
    assert gains["fewer_saves"] == pytest.approx(1 / 0.95, rel=0.01)
    assert all(change.memory_gib and change.memory_gib < 79 for change in report.changes)


def test_a_change_is_a_patch_that_a_resume_applies(operator: Operator, slow_run: RunView) -> None:
    chosen = chosen_patch(operator.workspace, slow_run, "speed:fewer_saves")
    assert chosen.patch.set == {"checkpoint.every": 20}
    assert chosen.patch.expected == {"checkpoint.every": 10}
    with pytest.raises(StateError, match="Nothing named 'nonsense' would make run") as caught:
        chosen_patch(operator.workspace, slow_run, "speed:nonsense")
    assert caught.value.code == "PATCH_UNKNOWN" and "compile" in str(caught.value)


def test_what_is_stated_of_a_training_is_judged_without_a_run(command: CommandLine) -> None:
    stated = ("diagnose", "--speed", "--params", "7B", "--gpus", "a100:8", "--tokens-per-s")
    slow, quick = (command(*stated, speed)["speed"] for speed in ("3000", "28000"))
    # 6 FLOPs for each parameter and token, and attention's, of 8 x 312 TFLOP/s.
    assert slow["mfu"] == pytest.approx(3000 * 6 * 7e9 * 1.06 / (8 * 312e12), rel=0.02)
    assert "slower than expected" in slow["verdict"]
    assert "as fast as can be expected" in quick["verdict"]
    # By fsdp, for which no plan compiles.
    assert [change["id"] for change in slow["changes"]] == ["double_micro_batch"]
    error = command(*stated[:5], "a1000:8", "--tokens-per-s", "1", code=1)["error"]
    assert error["code"] == "GPU_NOT_FOUND" and "Did you mean a100" in error["message"]
    for refused, field in (
        (stated[:-1], "tokens_per_s"),
        ((*stated[:2], *stated[4:], "9"), "params"),
        ((*stated, "-1"), "tokens_per_s"),
        ((*stated, "nan"), "tokens_per_s"),
        ((*stated, "2500000"), "tokens_per_s"),  # beyond the GPUs' peak
    ):
        error = command(*refused, code=2)["error"]
        assert (error["code"], error["field"]) == ("BAD_ARGUMENT", field)


def test_compiling_is_proposed_to_what_is_not_compiled_nor_faster_than_expected(
    command: CommandLine,
) -> None:
    stated = ("diagnose", "--speed", "--params", "124M", "--gpus", "a100", "--tokens-per-s")
    eager = command(*stated, "100000")["speed"]
    compiled = command(*stated, "100000", "--compiled")["speed"]
    assert [change["id"] for change in eager["changes"]] == ["compile"]
    assert "not compiled" in eager["notes"][0]
    assert compiled["changes"] == []
    assert ", compiled" in compiled["notes"][0]
    assert compiled["expected_mfu"][0] > eager["expected_mfu"][0]
    per_s = 100_000 * 1.05 * eager["expected_mfu"][1] / eager["mfu"]
    assert command(*stated, f"{per_s:.0f}")["speed"]["changes"] == []


def test_on_a_cpu_no_utilisation_is_claimed_and_saves_are_thinned_by_the_patch(
    command: CommandLine, tmp_path: Path
) -> None:
    text = light_spec(tmp_path, "--step-s", "0.02", "--save-s", "0.4")
    program = command("launch", text)["run_id"]
    command("wait", program, "--until", "completed", "--timeout", str(LONGEST_S))
    report = command("diagnose", program, "--speed")["speed"]
    assert "mfu" not in report and "peak of this device is not known" in report["verdict"]
    assert report["shares"]["save"] > report["shares"]["training"] / 3
    assert report["changes"] == [] and "program's own" in report["notes"][0]

    async def over_mcp() -> None:
        async with connected(command.environment) as client:
            answer = await answer_of(client, "diagnose", run_id=program, speed=True)
            assert answer["speed"] == report

    anyio.run(over_mcp)


@pytest.mark.slow
def test_a_resume_applies_the_proposed_change(command: CommandLine, tmp_path: Path) -> None:
    spec = small_spec(tmp_path, steps="40", eval="{every_steps: 2, batches: 40}")
    run = command("launch", spec)["run_id"]
    command("wait", run, "--until", "completed", "--timeout", str(LONGEST_S))
    changes = {one["id"]: one for one in command("diagnose", run, "--speed")["speed"]["changes"]}
    assert changes["fewer_evaluations"]["set"] == {"eval.every_steps": 4}
    applied = ("--apply", "speed:fewer_evaluations", "--set", "steps=60")
    command("resume", run, *applied)
    command("wait", run, "--until", "completed", "--timeout", str(LONGEST_S))
    attempt = command("status", run, "--detail")["attempts"][-1]
    assert attempt["changed"]["eval.every_steps"] == [2, 4]
    assert attempt["by"] == "patch:speed:fewer_evaluations"
