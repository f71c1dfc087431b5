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
def test_a_rehearsal_that_passes_goes_on_to_the_training_once(
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
