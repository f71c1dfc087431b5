"""Teaching a log's shape: files, attached trainings, programs, over each face."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import pytest
from support.mcp.mcp_client import answer_of, connected, error_of

from trainer_runtime.core.config.script import ScriptConfig
from trainer_runtime.core.decoding import Fields
from trainer_runtime.host.attach.examine_source import examine_source
from trainer_runtime.host.attach.log_events import LogEvents
from trainer_runtime.host.files.layout import AttemptFolder
from trainmaster.cli import run
from trainmaster.plan.fields.script import ScriptSpec
from trainmaster.plan.spec.script_checks import script_problems

_PATTERN = "it {step}/{target} L={loss} lr {lr}"
_OTHER = "bits {val_loss} after it {step}"
Ask = Callable[..., dict[str, Any]]


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "own.log"
    lines = [
        f"[ep 1 | it {step}/400] L={3.4 - step / 1000:.2f} lr 1e-3 ({10 + step / 100:.1f}k tok/s)\n"
        for step in range(20, 401, 20)
    ]
    path.write_text("".join(lines))
    return path


@pytest.fixture
def ask(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Ask:
    monkeypatch.setenv("TRAINMASTER_HOME", str(tmp_path / "home"))

    def asked(*arguments: str) -> dict[str, Any]:
        run([*arguments, "--json"])
        return dict(json.loads(capsys.readouterr().out))

    return asked


def test_a_log_is_taught_by_option_and_says_what_matched(ask: Ask, log: Path) -> None:
    answer = ask("metrics", str(log), "--pattern", _PATTERN)
    loss = answer["runs"][str(log)]["loss"]
    assert (loss["n"], loss["first"], loss["last"]) == (20, 3.38, 3.0)
    assert "matches 20 of 20 lines" in answer["notes"][0]
    understood = answer["coverage"][str(log)]
    assert understood["form"] == "your pattern"
    assert (understood["first_step"], understood["last_step"]) == (20, 400)
    assert understood["ended"] is True
    assert ask("diagnose", str(log), "--pattern", _PATTERN)["understood"]["keys"] == ["loss", "lr"]


def test_the_advice_for_a_log_that_is_not_understood_works_as_shown(ask: Ask, log: Path) -> None:
    answer = ask("metrics", str(log))
    assert answer["runs"][str(log)] == {}
    (shown,) = [note for note in answer["notes"] if "--pattern" in note]
    example = shown.split("such as `")[1].split("`")[0]
    drafted = answer["coverage"][str(log)]["untrusted_pattern"]
    for pattern in (example, drafted):
        words = shlex.split(f"metrics {log} --pattern {shlex.quote(pattern)}")
        assert ask(*words)["runs"][str(log)]["loss"]["n"] == 20
    assert ask("diagnose", str(log))["understood"]["untrusted_samples"]


@pytest.mark.parametrize(
    ("pattern", "code"),
    [
        ("epoch {epoch} loss {loss}", "PATTERN_MATCHES_NOTHING"),
        ("it {step} L={los}", "PATTERN_INVALID"),
        (r"(?P<step>(\d+)+)L=(?P<loss>\S+)", "PATTERN_TOO_SLOW"),
    ],
)
def test_what_does_not_teach_is_refused_by_code(
    ask: Ask, log: Path, pattern: str, code: str
) -> None:
    for command in ("metrics", "diagnose"):
        error = ask(command, str(log), "--pattern", pattern)["error"]
        assert error["code"] == code
        assert error["fix"]
        assert pattern in error["message"] or "SLOW" not in code  # as it was written
    refused = examine_source("log", str(log), "start", None, pattern) if "MATCH" in code else None
    assert refused is None or refused["refused"]["code"] == code


def test_the_host_says_what_it_understands_before_it_watches(log: Path) -> None:
    reading = examine_source("log", str(log), "start", None, _PATTERN)["source"]["reading"]
    assert (reading["lines"], reading["matched"], reading["key"]) == (20, 20, "loss")
    assert (reading["first"], reading["last"]) == ((20, "3.38"), (400, "3"))
    assert "key" not in examine_source("log", str(log), "start")["source"]["reading"]


def test_a_watched_log_becomes_events_by_its_pattern(tmp_path: Path, log: Path) -> None:
    attempt = AttemptFolder(tmp_path)
    log.rename(attempt.train_log)
    events = LogEvents(attempt, lambda: 1.7e9, pattern=f"{_PATTERN}\n{_OTHER}")
    with attempt.train_log.open("a") as file:
        file.write("bits 3.25 after it 400\n")
    while events.advance(live=False):
        pass
    events.finish()
    events.close()
    written = [json.loads(line) for line in attempt.events.read_text().splitlines()]
    assert [event["kind"] for event in written].count("metric") == 20
    assert next(event for event in written if event["kind"] == "target")["target_step"] == 400
    (evaluated,) = [event for event in written if event["kind"] == "eval"]
    assert (evaluated["step"], evaluated["values"]) == (400, {"val_loss": 3.25})


def test_a_program_carries_its_pattern_and_a_bad_one_is_refused_when_planned() -> None:
    script = ScriptSpec(path=".", command=["train"], pattern="it 5")
    (problem,) = script_problems(script)
    assert (problem.code, problem.field) == ("PATTERN_INVALID", "script.pattern")
    assert not list(script_problems(script.model_copy(update={"pattern": _PATTERN})))
    config = ScriptConfig.of(Fields({"command": ["train"], "pattern": _PATTERN}))
    assert config.pattern == _PATTERN


def test_one_call_of_an_agent_teaches_a_log(environment: dict[str, str], log: Path) -> None:
    async def scenario() -> None:
        async with connected(environment) as client:
            taught = await answer_of(
                client, "query_metrics", run_id=[str(log)], pattern=_PATTERN, points=2
            )
            assert taught["runs"][str(log)]["loss"]["last"] == 3.0
            found = await answer_of(client, "diagnose", run_id=str(log), pattern=_PATTERN)
            assert found["understood"]["last_step"] == 400
            error = await error_of(client, "diagnose", run_id=str(log), pattern="it {stop}")
            assert error.startswith("PATTERN_INVALID: ")

    anyio.run(scenario)
