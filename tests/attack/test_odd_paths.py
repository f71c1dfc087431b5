"""Odd paths in every argument of every command and tool: each gets an answer that names it."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import anyio
import click
import pytest
import typer
from support.attack.cases import attack_count, attack_random
from support.attack.odd_paths import make_odd_paths
from support.attack.planted_home import RUN, SPECS, plant_home, plant_specs
from support.mcp.mcp_client import connected

from trainer_runtime.train.foreign.inspect import inspect_output
from trainmaster.cli import run
from trainmaster.cli.command_table import commands_for
from trainmaster.home.paths import Home
from trainmaster.plan.fields.field_tree import all_fields

pytestmark = [pytest.mark.attack, pytest.mark.slow]

Printed = pytest.CaptureFixture[str]
# They serve, wait for somebody, or change this machine instead of reading a path. What `adopt`
# reads is tried by itself below, since each call starts PyTorch. `plan` reads what `launch` does.
_NOT_CALLED = {
    *("mcp", "board", "demo", "watch", "monitor", "wait", "keeper", "doctor", "provision"),
    *("adopt", "launch"),
}
_NO_TOOLS = {"wait_for_event", "provision", "add_host", "adopt", "launch"}
_WITHIN_S = 60.0


@pytest.fixture
def odd(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, str]]:
    work, folder = tmp_path / "work", tmp_path / "work/odd"
    folder.mkdir(parents=True)
    plant_specs(work)
    monkeypatch.chdir(work)
    monkeypatch.setenv("HOME", str(tmp_path / "user"))
    (tmp_path / "user").mkdir()
    yield make_odd_paths(folder)
    (folder / "closed").chmod(0o700)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Home:
    monkeypatch.setenv("TRAINMASTER_HOME", str(tmp_path / "home"))
    return plant_home(tmp_path / "home", tmp_path / "box")


@contextmanager
def bounded() -> Iterator[None]:
    """What happens inside ends in time, also where it waits for a pipe."""

    def give_up(*_: object) -> None:
        raise KeyboardInterrupt("it did not end")  # which no command takes for its own failure

    before = signal.signal(signal.SIGALRM, give_up)
    signal.setitimer(signal.ITIMER_REAL, _WITHIN_S)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def called(words: Sequence[str], printed: Printed) -> dict[str, Any]:
    printed.readouterr()
    with bounded():
        run([*words, "--json"])
    text = printed.readouterr().out.strip().splitlines()
    answer = json.loads(text[-1]) if text else {}
    error: dict[str, Any] = answer.get("error", {}) if isinstance(answer, dict) else {}
    return error


def command_lines() -> list[tuple[str, ...]]:
    """Every command with `{}` in one of its arguments that take text, the others filled in."""
    group = typer.main.get_command(commands_for())
    return [words for words in _of(group, ()) if words[0] not in _NOT_CALLED]


def _of(command: Any, names: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    for name, inner in getattr(command, "commands", {}).items():
        yield from _of(inner, (*names, name))
    if not names:
        return
    with click.Context(command) as context:
        parameters = [one for one in command.get_params(context) if _takes_text(one)]
    needed = [one for one in parameters if one.required]
    for odd_one in parameters:
        words = list(names)
        for one in dict.fromkeys([*needed, odd_one]):
            value = "{}" if one is odd_one else _usual(one.name)
            words += [value] if one.param_type_name == "argument" else [one.opts[0], value]
        yield tuple(words)


def _takes_text(parameter: Any) -> bool:
    return not getattr(parameter, "is_flag", False) and parameter.name != "lock_descriptor"


def _usual(name: str) -> str:
    return {
        "run": RUN,
        "spec": "small.yaml",
        "folder": "out",
        "pattern": "*",
        "when": "loss > 3",
    }.get(name, "small")


def test_every_command_answers_for_every_odd_path(
    home: Home, odd: dict[str, str], capsys: Printed
) -> None:
    numbers = attack_random("odd paths of commands")
    cases = [(words, kind) for words in command_lines() for kind in odd]
    defects = []
    for words, kind in numbers.sample(cases, min(len(cases), attack_count(30))):
        error = called([word.replace("{}", odd[kind]) for word in words], capsys)
        if error.get("code") == "INTERNAL":
            defects.append((words, kind, error["message"]))
    assert not defects, defects


@pytest.mark.parametrize(
    ("words", "kind"),
    [
        (("attach", "--log", "{}"), "a link to itself"),
        (("plot", "{}"), "two links in a loop"),
        (("metrics", "{}"), "a pipe"),
        (("trust", "{}"), "another user's home"),
        (("render", "small.yaml", "{}"), "another user's home"),
        (("fetch", RUN, "*", "{}"), "another user's home"),
        (("plot", RUN, "-o", "{}"), "another user's home"),
        (("plan", "{}"), "in a closed folder"),
        (("plan", "{}"), "a pipe"),
        (("plan", "{}"), "a long name"),
    ],
)
def test_a_path_that_can_not_be_used_is_named_by_the_error(
    words: tuple[str, ...], kind: str, home: Home, odd: dict[str, str], capsys: Printed
) -> None:
    error = called([word.replace("{}", odd[kind]) for word in words], capsys)
    assert error["code"] != "INTERNAL"
    assert error["fix"]
    assert odd[kind][-20:] in error["message"] or len(odd[kind]) > 250, error


def test_every_field_of_a_spec_answers_for_every_odd_path(
    home: Home, odd: dict[str, str], capsys: Printed
) -> None:
    numbers = attack_random("odd paths of specs")
    fields = [one.path.replace("[]", "[0]") for one in all_fields() if "a text" in one.accepts]
    cases = [(spec, field, kind) for spec in SPECS for field in fields for kind in odd]
    defects = []
    for spec, field, kind in numbers.sample(cases, min(len(cases), attack_count(30))):
        error = called(["plan", f"{spec}.yaml", "--set", f"{field}={odd[kind]}"], capsys)
        if error.get("code") == "INTERNAL":
            defects.append((spec, field, kind, error["message"]))
    assert not defects, defects


def test_every_tool_answers_for_every_odd_path(home: Home, odd: dict[str, str]) -> None:
    numbers = attack_random("odd paths of tools")
    kinds = [kind for kind in odd if kind != "not UTF-8"]  # no client sends that

    async def call_each() -> list[tuple[object, ...]]:
        defects: list[tuple[object, ...]] = []
        async with connected({**os.environ, "TRAINMASTER_HOME": str(home.root)}) as client:
            cases = [
                (tool.name, tool.input_schema, name, kind)
                for tool in (await client.list_tools()).tools
                for name, described in tool.input_schema["properties"].items()
                if _is_text(described) and tool.name not in _NO_TOOLS
                for kind in kinds
            ]
            for tool, schema, name, kind in numbers.sample(cases, attack_count(30)):
                arguments = {one: _usual(one) for one in schema.get("required", ())}
                with anyio.fail_after(60.0):
                    result = await client.call_tool(tool, {**arguments, name: odd[kind]})
                text = str(result.content[0].text)  # type: ignore[union-attr]
                if result.is_error and text.startswith("INTERNAL"):
                    defects.append((tool, name, kind, text[:200]))
        return defects

    assert anyio.run(call_each) == []


def _is_text(described: dict[str, Any]) -> bool:
    choices = described.get("anyOf", [described])
    return any(one.get("type") == "string" and "enum" not in one for one in choices)


def test_no_odd_path_is_an_output_folder(odd: dict[str, str]) -> None:
    for kind, path in odd.items():
        answer = inspect_output(path, "2.6")
        json.dumps(answer)
        assert answer["refused"]["code"] == "OUTPUT_UNKNOWN", kind
