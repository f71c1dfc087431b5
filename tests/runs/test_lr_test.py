"""`lr-test`: a real training whose rate rises until its loss diverges."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support.runs.running_run import CommandLine, small_spec


@pytest.mark.slow
def test_a_training_is_tested_until_it_diverges_and_its_rate_is_a_patch_of_the_spec(
    command: CommandLine, tmp_path: Path
) -> None:
    # SGD without clipping diverges for certain.
    spec = tmp_path / "spec.yaml"
    optimizer = "{name: sgd, lr: 0.02, grad_clip: 0.0, weight_decay: 0.0}"
    spec.write_text(small_spec(tmp_path, optimizer=optimizer, steps="5000"))
    picture = tmp_path / "rates.png"
    ends = ("--from", "1e-3", "--to", "1e5", "--steps", "60")
    tested = command("lr-test", str(spec), *ends, "-o", str(picture))

    assert tested["steps"] < tested["target_steps"] == 60
    assert tested["rates"] == sorted(tested["rates"]) and tested["rates"][0] < 0.01
    assert tested["set"] == {"optimizer.lr": tested["lr"]}
    assert tested["expected"] == {"optimizer.lr": 0.02}
    assert 1e-2 < tested["lr"] <= 0.101 * tested["lowest"]
    assert f"launch {spec} --set optimizer.lr={tested['lr']:g}" in tested["next_step"]
    assert picture.read_bytes().startswith(b"\x89PNG")

    # No alarm, nothing to fetch, and a run like any other.
    run = tested["run_id"]
    status = command("status", run)
    assert (status["state"], status["attempt"]) == ("completed", 1)
    assert "lr-test --report" in status["next_step"]
    diagnosis = command("diagnose", run)
    assert (diagnosis["findings"], diagnosis.get("past")) == ([], None)
    assert command("checkpoints", run)["checkpoints"] == []
    (listed,) = command("runs", "--label", "lr_test=0.02")["runs"]
    assert listed["run_id"] == run

    again = command("lr-test", "--report", run)
    assert again["lr"] == tested["lr"] and "^" in "\n".join(again["lines"])


def test_what_has_no_rate_to_raise_is_refused_and_nothing_is_started(
    command: CommandLine, tmp_path: Path
) -> None:
    program = tmp_path / "program"
    program.mkdir()
    (program / "train.py").write_text("print('loss=1')\n")
    script = json.dumps({"path": str(program), "command": ["python3", "train.py"]})
    of_program = f"name: own\nframework: script\nscript: {script}\n"
    spec = tmp_path / "spec.yaml"
    spec.write_text(small_spec(tmp_path))
    preferences = tmp_path / "preferences.jsonl"
    preferences.write_text('{"prompt": "a", "chosen": "b", "rejected": "c"}\n' * 40)
    of_dpo = (
        "name: dpo\nframework: trl\nmethod: dpo\nmodel: {n_layer: 1, n_head: 2, d_model: 32}\n"
        f"data: {{sources: [{{path: {preferences}, format: preference}}], tokenizer: byte}}\n"
        "steps: 10\n"
    )
    for arguments, expected, code in (
        ((of_program,), "UNSUPPORTED", 1),
        ((of_dpo,), "method", 1),
        ((str(spec), "--from", "1", "--to", "0.1"), "BAD_ARGUMENT", 2),
        ((str(spec), "--steps", "3"), "BAD_ARGUMENT", 2),
        ((str(spec), "-o", "rates.svg"), "BAD_ARGUMENT", 2),
        ((), "BAD_ARGUMENT", 2),
        (("--report", "other"), "RUN_NOT_FOUND", 1),
    ):
        error = command("lr-test", *arguments, code=code)["error"]
        assert expected in (error["code"], error.get("field")), error
    assert command("runs")["runs"] == []


@pytest.mark.engine
@pytest.mark.parametrize("framework", ["hf", "litgpt", "trl"])
def test_each_framework_completes_a_test_that_diverges(
    command: CommandLine, tmp_path: Path, framework: str
) -> None:
    optimizer = "{name: sgd, lr: 0.02, grad_clip: 0.0, weight_decay: 0.0}"
    model = "{n_layer: 1, n_head: 2, d_model: 32}"
    spec = small_spec(tmp_path, framework=framework, optimizer=optimizer, model=model)
    tested = command("lr-test", spec, "--from", "1e-3", "--to", "1e5", "--steps", "50")
    assert tested["steps"] < 50 and tested["lr"] > 1e-2
    status = command("status", tested["run_id"])
    assert (status["state"], status["attempt"]) == ("completed", 1)
    assert command("diagnose", tested["run_id"])["findings"] == []
