"""Rehearsals: what a short run of a training shows before the whole of it is paid for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from support.runs.rehearsals import program_spec, rehearse_all, verdicts
from support.runs.running_run import CommandLine, small_spec

# By the fault: the checks that fail.
_FAULTS = {
    "package": {"run"},
    "nan": {"loss"},
    "rate": {"loss", "rate"},
    "explosion": {"gradients"},
    "state": {"resume"},
    "resume": {"run", "resume"},
    "evaluation": {"run"},
    "export": {"run"},
    "disk": {"run"},
}


@pytest.mark.slow
def test_faults_of_a_program_are_caught_and_a_healthy_one_passes(
    command: CommandLine, tmp_path: Path
) -> None:
    specs = {
        fault: program_spec(tmp_path, fault or "healthy", "--fault", fault)
        for fault in ("", *_FAULTS)
    }
    specs["endless"] = program_spec(tmp_path, "endless", "--own-steps")
    reports = rehearse_all(command, specs)
    failed = {
        fault: {name for name, verdict in verdicts(report).items() if verdict == "failed"}
        for fault, report in reports.items()
    }
    assert failed == {"": set(), "endless": set(), **_FAULTS}, reports
    healthy = verdicts(reports[""])
    assert {name for name, verdict in healthy.items() if verdict == "passed"} == {
        *("run", "loss", "gradients", "resume", "evaluation", "export")
    }
    assert "bit-equal" in _check(reports[""], "resume")["detail"]
    assert verdicts(reports["endless"])["export"] == "not judged"
    for fault, checks in _FAULTS.items():
        assert reports[fault]["verdict"] == "failed"
        assert all(_check(reports[fault], name)["remedy"] for name in checks)
    assert "package_missing" in _check(reports["package"], "run")["detail"]
    assert "disk" in _check(reports["disk"], "run")["detail"]


def _check(report: dict[str, Any], name: str) -> dict[str, Any]:
    found: dict[str, Any] = next(check for check in report["checks"] if check["name"] == name)
    return found


@pytest.mark.slow
def test_a_rehearsal_that_passes_continues_to_the_training_once(
    command: CommandLine, tmp_path: Path
) -> None:
    spec = tmp_path / "spec.yaml"
    spec.write_text(program_spec(tmp_path, "own"))
    report = command("launch", str(spec), "--smoke")
    assert (report["verdict"], report["of"], report["kind"]) == ("passed", "own", "smoke")
    whole = command("status", report["launched"])
    assert (whole["name"], whole["target_step"]) == ("own", 5000)
    assert "rehearsal" not in whole

    status = command("status", report["run_id"])
    assert status["rehearsal"] == {
        "of": "own",
        "verdict": "passed",
        "launched": report["launched"],
    }
    assert status["findings"] == []
    (listed,) = command("runs", "--label", "rehearsal_of=own")["runs"]
    assert listed["run_id"] == report["run_id"]
    command("tick")
    assert command("rehearse", "--report", report["run_id"])["launched"] == report["launched"]
    assert len(command("runs")["runs"]) == 2
    command("stop", report["launched"])


def test_what_is_no_longer_than_a_rehearsal_is_said_and_nothing_is_started(
    command: CommandLine, tmp_path: Path
) -> None:
    spec = tmp_path / "spec.yaml"
    spec.write_text(small_spec(tmp_path, steps="20"))
    command.home.mkdir(exist_ok=True)
    (command.home / "settings.yaml").write_text("secrets: {allow: [NOT_THERE]}\n")
    for arguments, expected, code in (
        (("launch", str(spec), "--smoke"), "REHEARSAL_TOO_LONG", 1),
        (("launch", str(spec), "--smoke=twice"), "BAD_ARGUMENT", 2),
        (("launch", str(spec), "--smoke", "--vary", "seed=1,2"), "BAD_ARGUMENT", 2),
        (("rehearse",), "BAD_ARGUMENT", 2),
        (("rehearse", "--report", "none"), "RUN_NOT_FOUND", 1),
        (("rehearse", str(spec), "--set", "secrets=[NOT_THERE]"), "SECRET_MISSING", 1),
        (("rehearse", str(spec), "--set", "model.vocab_size=100"), "VOCABULARY_TOO_SMALL", 1),
    ):
        error = command(*arguments, code=code)["error"]
        assert error["code"] == expected, error
    assert command("runs")["runs"] == []


# What a hub or a tokenizer of its own would be needed for is another test's.
_OF_TUNING = "{n_layer: 1, n_head: 2, d_model: 32}"


@pytest.mark.engine
@pytest.mark.parametrize("framework", ["hf", "litgpt", "trl"])
@pytest.mark.parametrize("command_of", ["rehearse", "launch"])
def test_each_framework_passes(
    command: CommandLine, tmp_path: Path, framework: str, command_of: str
) -> None:
    spec = small_spec(tmp_path, framework=framework, model=_OF_TUNING, steps="1000")
    options = ("--smoke=only",) if command_of == "launch" else ()
    _passes_all(command(command_of, spec, *options), {"memory", "throughput"})


@pytest.mark.slow
def test_a_training_of_our_own_passes_at_its_size_and_tiny(
    command: CommandLine, tmp_path: Path
) -> None:
    spec = small_spec(tmp_path, steps="1000", eval="{every_steps: 500}", checkpoint="{every: 10m}")
    _passes_all(command("launch", spec, "--smoke=only"), {"memory", "throughput"})
    large = small_spec(
        tmp_path,
        model="{n_layer: 32, n_head: 32, d_model: 4096}",
        compute="{gpus: 1, gpu: h100}",
        host="not-rented-yet",
        steps="100000",
    )
    report = command("rehearse", large)
    assert (report["host"], report["kind"], report["steps"]) == ("local", "tiny", 20)
    _passes_all(report, {"memory", "throughput"})


def _passes_all(report: dict[str, Any], unjudged: set[str]) -> None:
    assert report["verdict"] == "passed", report
    others = {name for name, verdict in verdicts(report).items() if verdict != "passed"}
    assert others == unjudged, report


@pytest.mark.slow
def test_a_row_that_is_broken_at_the_data_s_end_is_found_before_the_training(
    command: CommandLine, tmp_path: Path
) -> None:
    rows = tmp_path / "rows.jsonl"
    rows.write_text('{"text": "the loss falls slowly"}\n' * 400 + '{"text": "the lo')
    data = f"{{sources: [{{path: {rows}, format: jsonl}}], seq_len: 32}}"
    spec = small_spec(tmp_path, data=data, steps="1000")
    report = command("rehearse", spec, code=3)
    assert _check(report, "run")["verdict"] == "failed"
    assert "step: data" in report["evidence"][0] and "400" in report["evidence"][1], report
