"""The commands around averaged weights: an early end, `average`, and `sample` from either."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support.runs.light_run import light_spec
from support.runs.running_run import LONGEST_S, CommandLine, small_spec

pytestmark = pytest.mark.slow
# No evaluation is better than the first one by so much.
_STOPPING = "{patience: 1, min_delta: 100.0}"


@pytest.mark.long  # tests/train/checkpoints/test_averaged_folder.py
def test_a_run_that_ended_early_is_averaged_and_writes_text_by_either_average(
    command: CommandLine, tmp_path: Path
) -> None:
    evaluation = f"{{every_steps: 10, batches: 2, early_stopping: {_STOPPING}}}"
    checkpoint = "{every: 10, keep_latest: 3, ema: 0.9}"
    model = "{n_layer: 1, n_head: 2, d_model: 32, style: gpt2}"  # which transformers has
    spec = small_spec(tmp_path, eval=evaluation, checkpoint=checkpoint, model=model)
    decisions = command("plan", spec)["decisions"]
    decision = next(row for row in decisions if row["field"] == "checkpoint.ema")
    assert "in memory and in each checkpoint" in decision["reason"]

    run = command("launch", spec)["run_id"]
    ended = command("wait", run, "--until", "completed", "--timeout", str(LONGEST_S))
    assert ended["event"] == "completed"
    status = command("status", run)
    assert (status["state"], status["step"], status["target_step"]) == ("completed", 20, 20)
    assert "stopped early: val_loss has not improved for 1 eval" in status["untrusted_detail"]

    answer = command("average", run, "--last", "2", "--to", str(tmp_path / "model"))
    assert answer["steps"] == {run: [10, 20]}
    described = json.loads((tmp_path / "model/config.json").read_text())
    assert described["architectures"]
    for start, path in (("averaged", "averaged"), ("ema", "checkpoints/step-00000020")):
        written = command("sample", run, "--prompt", "a", "--from", start, "--max-tokens", "4")
        assert written["path"] == path
    missing = command("average", run, "--steps", "10,15", code=1)["error"]
    assert missing["code"] == "NO_CHECKPOINT"
    assert "of step 15" in missing["message"] and "10, 20" in missing["fix"]


@pytest.mark.engine
def test_transformers_reads_the_mean_of_the_last_five_checkpoints(
    command: CommandLine, tmp_path: Path
) -> None:
    from transformers import AutoModelForCausalLM

    spec = small_spec(tmp_path, framework="hf", checkpoint="{every: 10, keep_latest: 5}")
    run = command("launch", spec)["run_id"]
    command("wait", run, "--until", "completed", "--timeout", str(LONGEST_S))
    answer = command("average", run, "--last", "5", "--to", str(tmp_path / "model"))
    steps = [20, 30, 40, 50, 60]
    assert answer["steps"] == {run: steps}
    model, loading = AutoModelForCausalLM.from_pretrained(
        tmp_path / "model", output_loading_info=True
    )
    assert not any(loading.values())
    folder = command.folder(run).checkpoints
    saved = [
        AutoModelForCausalLM.from_pretrained(folder / f"step-{step:08d}").state_dict()
        for step in steps
    ]
    for name, tensor in model.state_dict().items():
        mean = sum(weights[name].double() for weights in saved) / 5
        assert (tensor.double() - mean).abs().max() < 1e-6, name


@pytest.mark.long
def test_what_has_no_average_is_refused_with_the_reason(
    command: CommandLine, tmp_path: Path
) -> None:
    run = command("launch", light_spec(tmp_path))["run_id"]
    command("wait", run, "--until", "completed", "--timeout", str(LONGEST_S))
    refused = command("average", run, code=1)["error"]
    assert refused["code"] == "NOT_AVERAGED"
    assert "checkpoints of script are not in safetensors" in refused["message"]
    assert "--verify" in refused["fix"]
    both = command("average", run, "--last", "2", "--steps", "1", code=2)["error"]
    assert both["field"] == "last"
    no_average = command("sample", run, "--prompt", "a", "--from", "ema", code=1)["error"]
    assert no_average["code"] == "NO_CHECKPOINT"
