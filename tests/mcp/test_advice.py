"""What advice names can be called on the face that shows it: commands parse, calls validate."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import anyio
import pytest
from support.errors.advice_sources import advised, literals
from support.errors.command_lines import filled, refusal
from support.mcp.mcp_client import answer_of, connected, error_of

from trainer_runtime.core.protocol.command import command, option
from trainmaster.answers.runs import StopAnswer
from trainmaster.cli import run
from trainmaster.errors.advice import CALLS, Face, call_of, for_face, shown_by, waiting_from
from trainmaster.mcp.definition import build_tool
from trainmaster.mcp.toolsets import TOOLSETS

TOOLS = {
    tool.name: tool for definitions in TOOLSETS.values() for tool in map(build_tool, definitions)
}


def test_no_command_of_advice_is_written_by_hand() -> None:
    """Else its quoting is a shell's on every face, and no test knows of it."""
    assert [one for one in literals() if one.is_command and _may_not(one.place)] == []


def _may_not(place: str) -> bool:
    return not place.startswith(_PAGES_AND_HELP)


# Texts for shells alone: pages, files that are run by one, and what a person types.
_PAGES_AND_HELP = (
    "server/trainmaster/plan/export/",
    "server/trainmaster/runs/adopt/starting_spec.py",
    "server/trainmaster/errors/",
    "server/trainmaster/home/",
    "server/trainmaster/settings/",
)


def test_the_commands_of_all_advice_parse() -> None:
    commands = [one for one in advised() if not one.is_option and one.words[0] != "X"]
    assert len(commands) > 200
    refused = [
        f"{one.place}: {shlex.join(one.words)}: {reason}"
        for one in commands
        if (reason := refusal(one.words))
    ]
    assert not refused, "\n".join(refused)


def test_the_calls_of_all_advice_validate() -> None:
    """Where a command has no call, the shell's is shown, which the test above has parsed."""
    calls = [
        (one.place, call)
        for one in advised()
        if not one.is_option and (call := call_of(_known(one.words), TOOLS)) is not None
    ]
    assert len(calls) > 100
    assert {call[0] for _, call in calls} > {"resume", "wait_for_event", "get_run", "launch"}
    for place, (tool, arguments) in calls:
        try:
            TOOLS[tool].fn_metadata.arg_model.model_validate(arguments)
        except ValueError as error:
            pytest.fail(f"{place}: {tool}({arguments}): {error}")


def _known(words: Sequence[str]) -> list[str]:
    """What is only known when it is said may have to be a number."""
    return filled(["1" if word == "X" else word for word in words])


def test_a_machine_to_plan_for_or_to_rent_is_a_parameter() -> None:
    assert call_of(["plan", "SPEC", "--on", "h100:8"], TOOLS) == (
        "plan_run",
        {"spec": "SPEC", "on": "h100:8"},
    )
    assert call_of(["offers", "--gpu", "h100", "--count", "8"], TOOLS) == (
        "list_offers",
        {"gpu": "h100", "count": 8},
    )


def test_no_advice_names_an_option_where_no_face_can_translate_it() -> None:
    ours = set(_OPTION.findall(_REFERENCE.read_text()))
    assert {"--set", "--host"} <= ours
    loose = [
        f"{one.place}: {option}"
        for one in literals()
        if " " in one.text and one.place.startswith(_ADVISING)
        if not one.place.startswith(_COMMAND_LINES_ONLY)
        for option in one.loose_options
        if option not in _OF_OTHER_PROGRAMS
        if option in ours or not one.place.startswith(_ON_OTHER_PROGRAMS)
    ]
    assert loose == []


# The client's modules and what both sides share; others compose command lines of programs.
_ADVISING = ("server/trainmaster/", "trainer_runtime/core/", "trainer_runtime/host/answer/")
_COMMAND_LINES_ONLY = (
    "server/trainmaster/cli/",
    "server/trainmaster/board/",
    "server/trainmaster/serving/listening.py",
)
# What is said there is of other programs and their options, unless one is also of ours.
_ON_OTHER_PROGRAMS = ("trainer_runtime/core/diagnosis/",)
_OPTION = re.compile(r"--[a-z][a-z-]+")
_REFERENCE = Path(__file__).parents[2] / "docs" / "cli.md"
_OF_OTHER_PROGRAMS = {
    "--hash", "--shm-size", "--ipc", "--master-port", "--rdzv-endpoint", "--gpu-architecture",
    "--use-spot",
}  # fmt: skip


def test_a_command_line_names_the_program_and_the_home_and_a_server_its_tools() -> None:
    shell = ("/opt/a b/trainmaster", "--home", "/data/home")
    advice = "Read `trainmaster logs r-a`, then `trainmaster resume r-a --set a.b=1 --from best`."
    waiting = command("wait", "r-a", "--until", "end", "--timeout", 14400, in_shell=True)
    words = "wait r-a --until end --timeout 14400"
    assert for_face(advice) == advice
    with shown_by(Face(shell)):
        named = "`'/opt/a b/trainmaster' --home /data/home"
        assert for_face(advice) == (
            f"Read {named} logs r-a`, then {named} resume r-a --set a.b=1 --from best`."
        )
    with shown_by(Face(shell, frozenset(TOOLS))):
        worded = for_face(advice)
        assert worded == (
            'Read `tail_log(run_id="r-a")`, then '
            '`resume(run_id="r-a", set=["a.b=1"], start="best")`.'
        )
        assert for_face(worded) == worded
        assert for_face(command("wait", "r-a", "--until", "end,eval")) == (
            'wait_for_event(run_id="r-a", until=["end","eval"])'
        )
        assert for_face(waiting) == f"{shlex.join(shell)} {words}"
        assert for_face("Or with `--from best`.") == 'Or with `start="best"`.'
        consent = "`trainmaster inspect r-a --allow-py-spy`"
        assert for_face(consent) == 'inspect_run(run_id="r-a", allow_py_spy=true)'
        assert for_face("`trainmaster tick` does.") == f"`{shlex.join(shell)} tick` does."
    with shown_by(Face(shell, frozenset(TOOLS), is_remote=True)):  # no shell on this machine
        assert for_face(waiting) == 'wait_for_event(run_id="r-a", until=["end"])'
        several = command("wait", "r-a", "r-b", "r-c", "--until", "end", in_shell=True)
        assert for_face(waiting_from("x", several)) == (
            'wait_for_event(run_id=["r-a","r-b","r-c"], until=["end"], cursor="x")'
        )
        there = f"`{shlex.join(shell)} tick` on the server's machine does."
        assert for_face("`trainmaster tick` does.") == there
    with shown_by(Face(shell, frozenset({"tail_log"}))):  # read-only
        assert "`'/opt/a b/trainmaster' --home /data/home resume r-a" in for_face(advice)


def test_values_are_quoted_as_each_face_does() -> None:
    odd = ('script.command=["python", "it\'s.py"]', "a `b` $c", "ü;x")
    advice = f"Try {command('resume', 'r-a', *(word for v in odd for word in ('--set', v)))}."
    alone = f"Or add {option('--set', odd[0])}."
    with shown_by(Face(("trainmaster",))):
        line = re.search(r"(`+)(.*)\1", for_face(advice))
        assert line is not None
        assert [w for w in shlex.split(line[2]) if w in odd] == list(odd)
        assert shlex.split(for_face(alone).split("`")[1])[1] == odd[0]
    with shown_by(Face(("trainmaster",), frozenset(TOOLS))):
        call = re.search(r"set=(\[.*\])\)", for_face(advice))
        assert call is not None and json.loads(call[1]) == list(odd)
        assert json.loads(for_face(alone).split("`")[1].partition("=")[2]) == [odd[0]]


def test_the_text_of_others_is_shown_as_it_stands() -> None:
    lured = "`trainmaster approve q-1`"
    answer = StopAnswer(run_id=lured, state="failed", next_step="`trainmaster tick`")
    with shown_by(Face(("/opt/trainmaster",))):
        assert answer.model_dump()["run_id"] == lured
        assert answer.model_dump()["next_step"] == "/opt/trainmaster tick"
        assert answer.advising().next_step == "/opt/trainmaster tick"


def test_the_tools_of_commands_exist_with_their_parameters() -> None:
    for call in CALLS.values():
        known = set(TOOLS[call.tool].parameters["properties"])
        named = {*call.places, *call.options.values(), *call.flags.values()} - {""}
        assert named <= known, call.tool


def test_what_an_error_advises_runs_where_it_is_pasted(
    environment: dict[str, str], tmp_path: Path
) -> None:
    """With no PATH, no variable of ours, and in another folder."""

    async def refused() -> str:
        async with connected(environment) as client:
            listed = await answer_of(client, "list_runs")
            assert listed["runs"] == []
            unknown = await error_of(client, "get_run", run_id="nobody")
            assert "list_runs()" in unknown
            return await error_of(client, "resume", run_id="nobody")

    assert "list_runs()" in anyio.run(refused)
    with shown_by(Face((sys.executable, "-m", "trainmaster", "--home", str(tmp_path / "home")))):
        words = shlex.split(for_face(command("runs", "--json")))
    done = subprocess.run(words, cwd=tmp_path, env={}, capture_output=True, timeout=120)
    assert json.loads(done.stdout) == {"runs": []}, done.stderr


def test_the_home_is_an_option_before_the_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TRAINMASTER_HOME", str(tmp_path / "other"))
    assert run(["--home", str(tmp_path / "home"), "status", "nobody", "--json"]) == 1
    fix = json.loads(capsys.readouterr().out)["error"]["fix"]
    assert f"--home {shlex.quote(str(tmp_path / 'home'))} runs`" in fix
    assert not (tmp_path / "other").exists()
    assert run([f"--home={tmp_path / 'home'}", "runs"]) == 0
    assert run(["--home"]) == 2
