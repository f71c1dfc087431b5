from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import typer
from support.backends.kept_runtimes import kept_runtimes
from support.runs.running_run import LONGEST_S

from scripts.pages.commands import every_command
from trainmaster.cli import run

_COMMANDS = every_command()
_MAIN = "from trainmaster.cli import main; main()"
_SPEC = """\
name: rehearsal
framework: nanogpt
model: {n_layer: 1, n_head: 2, d_model: 32}
data: {sources: [{path: corpus}], seq_len: 32}
batch: {tokens: 256}
steps: 40
eval: {every_steps: 20, batches: 2}
checkpoint: {every: 20}
labels: {experiment: faces}
host: debug
"""

Command = Callable[..., Any]


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty home, which every command of a test finds."""
    monkeypatch.setenv("TRAINMASTER_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("TRAINMASTER_DEBUG", raising=False)
    return tmp_path / "home"


@pytest.fixture
def spec(tmp_path: Path) -> str:
    """A short rehearsal on the debug backend."""
    (tmp_path / "corpus").mkdir()
    (tmp_path / "corpus" / "text.txt").write_text("A line of text to learn from.\n" * 400)
    path = tmp_path / "spec.yaml"
    path.write_text(_SPEC)
    kept_runtimes.lend(tmp_path / "home/debug")
    return str(path)


@pytest.fixture
def command(capsys: pytest.CaptureFixture[str]) -> Command:
    """Runs a command line with --json, and gives its exit code and what it answered."""

    def call(*arguments: str) -> tuple[int, Any]:
        code = run([*arguments, "--json"])
        lines = capsys.readouterr().out.splitlines()
        assert len(lines) == 1, lines
        return code, json.loads(lines[0])

    return call


@pytest.fixture
def completed(command: Command, spec: str) -> str:
    """The id of a run that has completed."""
    return launched_and_completed(command, spec)


def launched_and_completed(command: Command, spec: str) -> str:
    _, launched = command("launch", spec)
    code, _ = command("wait", launched["run_id"], "--until", "completed", "--timeout", "240")
    assert code == 0
    return str(launched["run_id"])


@pytest.fixture(scope="module")
def home_to_read(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home that one test fills for those which only read it."""
    return tmp_path_factory.mktemp("read") / "home"


@pytest.fixture
def read_only(
    command: Command, spec: str, home_to_read: Path, monkeypatch: pytest.MonkeyPatch
) -> str:
    """The id of a completed run of all tests that change nothing."""
    monkeypatch.setenv("TRAINMASTER_HOME", str(home_to_read))
    if not home_to_read.exists():
        kept_runtimes.lend(home_to_read / "debug")
        launched_and_completed(command, spec)
    (row,) = command("runs")[1]["runs"]
    return str(row["run_id"])


def test_every_command_takes_json() -> None:
    without = [
        name
        for name, item in _COMMANDS.items()
        if not any("--json" in parameter.opts for parameter in item.params)
        and getattr(item, "invoke_without_command", True)  # a group that has no answer of its own
    ]
    assert without == []


@pytest.mark.parametrize(
    "arguments",
    [
        ["status"],
        ["status", "a-run", "--bogus"],
        ["nonsense"],
        ["runs", "--limit", "none"],
        ["runs", "--limit", "0"],
        ["logs", "a-run", "--stream", "sideways"],
        ["wait", "a-run", "--timeout", "soon"],
        ["mcp", "--toolsets", "observe,destroy"],
        ["mcp", "--tools", "launch,destroy"],
        ["mcp", "--toolsets", "provision", "--read-only"],
        ["install", "codex", "--toolsets", "everyone", "--dry-run"],
        ["clean", "a-run"],
        ["runs", "--state", "happy"],
    ],
)
def test_bad_usage_is_reported_as_json_and_exits_with_2(
    command: Command, arguments: list[str]
) -> None:
    code, answer = command(*arguments)
    assert code == 2
    assert answer["error"]["code"] == "BAD_ARGUMENT"
    assert answer["error"]["message"]
    assert answer["error"]["fix"]


@pytest.mark.parametrize(
    ("options", "field", "words"),
    [
        (["--at-once", "2"], "--at-once", "--vary is not given"),
        (["--dry-run", "--vary", "seed=1,2"], "--vary", "--dry-run plans a single run"),
        (["--vary", "seed=1,2,1"], "--vary", "Twice the same value of seed: 1"),
        (["--vary", "seed=1,2", "--vary", "seed=3,4"], "--vary", "Twice the same field: seed"),
        (["--vary", "seed=1"], "--vary", "make 1 run; an array has 2 to"),
    ],
)
def test_runs_of_one_spec_that_cannot_be_launched_are_refused_each_for_its_reason(
    command: Command, spec: str, options: list[str], field: str, words: str
) -> None:
    code, answer = command("launch", spec, *options)
    assert (code, answer["error"]["code"]) == (2, "BAD_ARGUMENT")
    assert answer["error"]["field"] == field and words in answer["error"]["message"]


def test_an_error_is_reported_as_json_on_stdout_and_exits_with_1(command: Command) -> None:
    code, answer = command("status", "no-such-run")
    assert code == 1
    assert set(answer) == {"error"}
    assert set(answer["error"]) >= {"code", "message", "fix", "retryable"}
    assert answer["error"]["code"] == "RUN_NOT_FOUND"


def test_without_json_an_error_is_text_on_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["status", "no-such-run"]) == 1
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.startswith("RUN_NOT_FOUND: ")
    assert "no-such-run" in printed.err
    assert "\nFix: " in printed.err


def test_json_may_stand_before_the_arguments(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["status", "--json", "no-such-run"]) == 1
    assert json.loads(capsys.readouterr().out)["error"]["code"] == "RUN_NOT_FOUND"


def test_a_defect_is_internal_and_shows_its_traceback_only_on_demand(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = typer.Typer()

    @broken.command()
    def explode(as_json: bool = typer.Option(False, "--json")) -> None:
        raise ZeroDivisionError("a detail that may be secret")

    assert run(["--json"], broken) == 1
    printed = capsys.readouterr()
    assert json.loads(printed.out)["error"]["code"] == "INTERNAL"
    assert printed.err == ""
    assert "secret" not in printed.out

    monkeypatch.setenv("TRAINMASTER_DEBUG", "1")
    assert run(["--json"], broken) == 1
    assert "ZeroDivisionError: a detail" in capsys.readouterr().err


def test_a_plan_reports_decisions_with_reasons_and_estimates(command: Command, spec: str) -> None:
    code, answer = command("plan", spec, "--set", "optimizer.lr=0.001")
    assert code == 0
    assert all({"field", "value", "reason"} <= set(item) for item in answer["decisions"])
    assert answer["estimates"]["parameters"] > 0
    assert "optimizer.lr" not in [item["field"] for item in answer["decisions"]]


def test_a_dry_run_of_launch_is_a_plan(command: Command, spec: str) -> None:
    _, planned = command("plan", spec)
    code, answer = command("launch", spec, "--dry-run")
    assert code == 0
    assert set(answer) == set(planned)
    assert command("runs")[1] == {"runs": []}


def test_a_spec_that_cannot_work_names_the_field_and_starts_nothing(
    command: Command, spec: str
) -> None:
    code, answer = command("launch", spec, "--set", "model.n_head=3")
    assert code == 1
    assert answer["error"]["field"].startswith("model")
    assert command("runs")[1] == {"runs": []}


def test_the_same_idempotency_key_finds_the_first_run(command: Command, spec: str) -> None:
    _, first = command("launch", spec, "--idempotency-key", "one")
    _, second = command("launch", spec, "--idempotency-key", "one")
    assert first["run_id"] == second["run_id"]
    assert len(command("runs")[1]["runs"]) == 1


@pytest.mark.slow
def test_launch_runs_status_and_wait_have_the_promised_shapes(command: Command, spec: str) -> None:
    code, launched = command("launch", spec)
    assert code == 0
    assert {"run_id", "state", "attempt", "host"} <= set(launched)
    run_id = launched["run_id"]
    code, waited = command("wait", "rehearsal", "--until", "step:40,failed", "--timeout", "240")
    assert code == 0
    assert waited["event"] == "step:40"
    assert {"run_id", "state", "step", "cursor", "changes", "next_step"} <= set(waited)
    code, status = command("status", run_id)
    assert code == 0
    assert {"run_id", "state", "attempt", "step", "metrics", "findings"} <= set(status)
    assert "attempts" not in status
    assert "attempts" in command("status", run_id, "--detail")[1]
    _, found = command("runs", "--label", "experiment=faces")
    row = found["runs"][0]
    assert set(row) == {"run_id", "name", "state", "step", "target_step", "host", "labels"}
    assert command("runs", "--state", "failed")[1] == {"runs": []}


@pytest.mark.slow
def test_wait_reports_a_timeout_by_4_and_another_end_by_3(command: Command, spec: str) -> None:
    sets = ["--set", "steps=4000", "--set", 'env.TRAINMASTER_STEP_S="0.05"']
    _, launched = command("launch", spec, *sets)
    code, answer = command("wait", launched["run_id"], "--until", "completed", "--timeout", "0")
    assert (code, answer["event"]) == (4, "timeout")
    since = f"--until completed --timeout 14400 --cursor {answer['cursor']}"
    waits = f"wait {launched['run_id']} {since}"
    assert answer["next_step"].endswith(f" {waits}")
    assert command("stop", launched["run_id"])[0] == 0
    code, answer = command("wait", launched["run_id"], "--until", "completed", "--timeout", "240")
    assert (code, answer["event"]) == (3, "stopped")


def test_metrics_are_summarised_and_reduced_unless_all_are_asked_for(
    command: Command, read_only: str
) -> None:
    _, reduced = command("metrics", read_only, "--key", "loss", "--points", "5")
    series = reduced["runs"][read_only]["loss"]
    assert {"n", "first", "last", "min", "max", "steps", "values"} <= set(series)
    assert len(series["steps"]) == len(series["values"]) == 5
    _, whole = command("metrics", read_only, "--key", "loss", "--all")
    assert len(whole["runs"][read_only]["loss"]["values"]) == series["n"] == 40


def test_logs_read_on_from_a_cursor_and_end_with_the_run(
    command: Command, read_only: str, capsys: pytest.CaptureFixture[str]
) -> None:
    _, last = command("logs", read_only, "--limit", "2")
    assert len(last["lines"]) == 2
    _, rest = command("logs", read_only, "--cursor", last["cursor"])
    assert rest["lines"] == []
    assert rest["more"] is False
    assert command("logs", read_only, "--grep", "no such words")[1]["lines"] == []
    assert run(["logs", read_only, "-f", "--limit", "2"]) == 0
    assert capsys.readouterr().out.splitlines() == last["lines"]


def test_checkpoints_report_what_a_resume_would_take(command: Command, read_only: str) -> None:
    code, answer = command("checkpoints", read_only, "--verify")
    assert code == 0
    assert set(answer) == {"checkpoints", "skipped", "resume_from"}
    assert answer["resume_from"] == 40
    assert all(row["verified"] is True for row in answer["checkpoints"])


def test_resume_continues_and_refuses_what_is_running(command: Command, completed: str) -> None:
    sets = ["--set", "steps=4000", "--set", 'env.TRAINMASTER_STEP_S="0.05"']
    code, resumed = command("resume", completed, "--from", "20", *sets)
    assert code == 0
    assert resumed["attempt"] == 2
    code, refused = command("resume", completed)
    assert (code, refused["error"]["code"]) == (1, "RUN_IS_RUNNING")
    assert command("stop", completed)[1]["run_id"] == completed


def test_clean_removes_with_yes_alone_and_keeps_what_is_asked_for(
    command: Command, completed: str
) -> None:
    assert command("clean", completed)[0] == 2
    code, answer = command("clean", completed, "--keep", "best,final", "--yes")
    assert code == 0
    assert answer["removed"]
    assert "final" in answer["kept"]
    assert command("status", completed)[1]["state"] == "completed"


def test_tick_and_replay_answer(command: Command, completed: str) -> None:
    code, answer = command("tick")
    assert code == 0
    assert all(set(row) == {"run_id", "state", "did"} for row in answer["runs"])
    code, answer = command("replay")
    assert code == 0
    assert answer["runs"] == 1
    assert answer["points"] > 0


def test_doctor_names_a_remedy_for_whatever_is_missing(command: Command, home: Path) -> None:
    code, answer = command("doctor")
    assert code == (0 if answer["ok"] else 1)
    assert answer["home"] == str(home)
    assert all("remedy" in check for check in answer["checks"] if check["state"] != "ok")


def test_doctor_asks_about_what_is_used_and_names_the_rest_in_a_line(
    command: Command, home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _, answer = command("doctor")
    assert not [row["name"] for row in answer["checks"] if "kaggle" in row["name"]]
    assert "Kaggle" in answer["not_checked"] and "doctor --all" in answer["not_checked"]
    _, whole = command("doctor", "--all")
    assert "kaggle package" in [row["name"] for row in whole["checks"]]
    assert "not_checked" not in whole
    (home / "settings.yaml").write_text("kaggle: {internet: false}\n")
    _, used = command("doctor")
    assert "kaggle package" in [row["name"] for row in used["checks"]]
    run(["doctor"])
    printed = capsys.readouterr().out.splitlines()
    assert "checks passed" in printed[1]  # before the list


def test_people_get_the_same_in_words_without_a_terminals_escapes(
    read_only: str, capsys: pytest.CaptureFixture[str]
) -> None:
    for arguments in (["runs"], ["status", read_only], ["metrics", read_only]):
        assert run(arguments) == 0
        printed = capsys.readouterr().out
        assert read_only in printed
        assert "\x1b" not in printed
        assert "{" not in printed


def test_ctrl_c_exits_with_130_and_says_that_the_training_continues(tmp_path: Path) -> None:
    log = tmp_path / "train.log"
    log.write_text("step 1\n")
    # A shell has what it starts in the background ignore Ctrl-C, these tests perhaps included.
    heeding = f"import signal; signal.signal(signal.SIGINT, signal.default_int_handler); {_MAIN}"
    with subprocess.Popen(
        [sys.executable, "-c", heeding, "logs", str(log), "-f"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as following:
        assert following.stdout is not None
        assert following.stdout.readline() == "step 1\n"
        following.send_signal(signal.SIGINT)
        _, errors = following.communicate(timeout=LONGEST_S)
    assert following.returncode == 130
    assert "the training continues" in errors
    assert "Traceback" not in errors


def test_a_reader_that_goes_away_is_no_error(tmp_path: Path) -> None:
    log = tmp_path / "train.log"
    log.write_text("step\n" * 100_000)
    arguments = ["logs", str(log), "--limit", "100000"]
    with subprocess.Popen(
        [sys.executable, "-c", _MAIN, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as reading:
        assert reading.stdout is not None
        assert reading.stderr is not None
        reading.stdout.readline()
        reading.stdout.close()
        assert reading.stderr.read() == ""
