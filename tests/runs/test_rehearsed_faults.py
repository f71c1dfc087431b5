"""Faults that a rehearsal catches, each planted in a program, in data, in a spec or in packages."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from support.runs.rehearsals import program_spec, rehearse_all, verdicts
from support.runs.running_run import CommandLine, begin_with, small_spec
from support.session.tiers import at_length

pytestmark = pytest.mark.slow

# By the fault of a program: the checks that fail, and what is said of the first.
_FAULTS = {
    "package": ({"run"}, "package_missing"),
    "credential": ({"run"}, "tracker_no_credentials"),
    "vocabulary": ({"run"}, "index_out_of_range"),
    "memory": ({"run"}, "memory"),
    "disk": ({"run"}, "disk"),
    "labels": ({"loss"}, "does not fall"),
    "masked": ({"loss", "gradients"}, "0 at each of"),
    "nan": ({"loss"}, "not finite"),
    "rate": ({"loss", "rate"}, "does not fall"),
    "explosion": ({"gradients"}, "grow"),
    "state": ({"resume"}, "differ by up to"),
    "resume": ({"run", "resume"}, "KeyError"),
    "evaluation": ({"run"}, "no rows"),
    "export": ({"run"}, "can't be exported"),
}
_FEW = ("package", "masked", "state")


@pytest.mark.parametrize("faults", [_FEW, *at_length((tuple(_FAULTS),))])
def test_each_fault_of_a_program_is_caught_and_a_healthy_one_passes(
    command: CommandLine, tmp_path: Path, faults: tuple[str, ...]
) -> None:
    specs = {
        fault: program_spec(tmp_path, fault or "healthy", "--fault", fault)
        for fault in ("", *faults)
    }
    specs["endless"] = program_spec(tmp_path, "endless", "--own-steps")
    reports = rehearse_all(command, specs)
    expected = {fault: _FAULTS[fault][0] for fault in faults}
    caught = {fault: set(failed(report)) for fault, report in reports.items()}
    assert caught == {"": set(), "endless": set(), **expected}, reports
    healthy = verdicts(reports[""])
    assert {name for name, verdict in healthy.items() if verdict == "passed"} == {
        *("run", "loss", "gradients", "resume", "evaluation", "export")
    }
    resumed = next(check for check in reports[""]["checks"] if check["name"] == "resume")
    assert "bit-equal" in resumed["detail"]
    assert verdicts(reports["endless"])["export"] == "not judged"
    for fault in faults:
        report, checks, said = reports[fault], failed(reports[fault]), _FAULTS[fault][1]
        assert report["verdict"] == "failed"
        assert all(check["remedy"] for check in checks.values()), report
        words = [next(iter(checks.values()))["detail"], *report.get("evidence", ())]
        assert said in " ".join(words), report


def failed(report: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """The checks that failed, by name, in the report's order."""
    return {check["name"]: check for check in report["checks"] if check["verdict"] == "failed"}


def test_a_row_that_is_broken_at_the_data_s_end_is_found_before_the_training(
    command: CommandLine, tmp_path: Path
) -> None:
    rows = tmp_path / "rows.jsonl"
    rows.write_text('{"text": "the loss falls slowly"}\n' * 400 + '{"text": "the lo')
    data = f"{{sources: [{{path: {rows}, format: jsonl}}], seq_len: 32}}"
    spec = small_spec(tmp_path, data=data, steps="1000")
    report = command("rehearse", spec, code=3)
    assert set(failed(report)) == {"run"}
    assert "step: data" in report["evidence"][0] and "line 401" in report["evidence"][1], report


# What packages of a host may do wrong, by what their Python runs first.
_LOST_STATE = """\
import sys
if "train.py" in sys.orig_argv:
    import torch
    torch.optim.Optimizer.load_state_dict = lambda *_: None
"""
_FAILING_SAVE = """\
import sys
if "train.py" in sys.orig_argv:
    import safetensors.torch as files

    plain = files.save_file

    def save_file(tensors, filename, *rest, **options):
        if "final" in str(filename):
            raise RuntimeError("Some tensors share memory: model.embed, lm_head")
        return plain(tensors, filename, *rest, **options)

    files.save_file = save_file
"""


@pytest.mark.long
def test_an_optimizer_s_state_that_is_not_restored_shows_in_the_losses_behind_the_checkpoint(
    command: CommandLine, tmp_path: Path
) -> None:
    optimizer = {"model": "{style: gpt2, n_layer: 1, n_head: 2, d_model: 32}"}
    optimizer["optimizer"] = "{name: adamw, lr: 0.003}"
    env = begin_with(tmp_path / "packages", _LOST_STATE)
    spec = small_spec(tmp_path, steps="1000", env=env, **optimizer)
    assert set(failed(command("rehearse", spec, code=3))) == {"resume"}


@pytest.mark.long
def test_a_rate_at_which_the_training_explodes_fails(command: CommandLine, tmp_path: Path) -> None:
    spec = small_spec(tmp_path, steps="1000", optimizer="{name: sgd, lr: 1000000.0, grad_clip: 0}")
    report = command("rehearse", spec, code=3)
    assert {"run", "loss"} & set(failed(report)), report


@pytest.mark.engine
@pytest.mark.parametrize("framework", ["hf", "trl"])
def test_weights_that_can_not_be_exported_fail(
    command: CommandLine, tmp_path: Path, framework: str
) -> None:
    env = begin_with(tmp_path / "packages", _FAILING_SAVE)
    model = "{n_layer: 1, n_head: 2, d_model: 32}"
    spec = small_spec(tmp_path, framework=framework, model=model, steps="1000", env=env)
    report = command("rehearse", spec, code=3)
    assert "run" in failed(report), report


@pytest.mark.engine
def test_prompts_that_leave_no_room_for_their_answers_fail_in_sft(
    command: CommandLine, tmp_path: Path
) -> None:
    """Such rows would be cut to their prompt, every label of which is masked."""
    rows = tmp_path / "rows.jsonl"
    row = {"prompt": "what falls slowly, and why? " * 20, "completion": "the loss"}
    rows.write_text(f"{json.dumps(row)}\n" * 200)
    data = f"{{sources: [{{path: {rows}, format: jsonl}}], seq_len: 64}}"
    model = "{n_layer: 1, n_head: 2, d_model: 32}"
    spec = small_spec(tmp_path, framework="trl", model=model, data=data, steps="1000")
    report = command("rehearse", spec, code=3)
    assert set(failed(report)) == {"run"}
    assert "0 rows fit data.seq_len 64" in report["evidence"][1], report
