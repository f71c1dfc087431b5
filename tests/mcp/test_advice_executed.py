"""Advice of answers and run states is executed as each face gives it, placeholders filled."""

from __future__ import annotations

import json
import re
import shlex
import sys
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp import Client
from support.mcp.mcp_client import connected
from support.runs.running_run import CommandLine

_SPEC = """\
name: adv
framework: nanogpt
model: {n_layer: 1, n_head: 2, d_model: 32}
data: {sources: [{path: CORPUS}], seq_len: 32}
batch: {tokens: 256}
steps: 40
eval: {every_steps: 20, batches: 2}
checkpoint: {every: 20}
host: debug
"""
# What needs no stand-in, and ends by itself.
_PASSED_OVER = ("demo", "watch", "monitor", "keeper", "hosts add", "board")
_ADVICE = ("next_step", "fix", "advice", "remedy", "note")
_USAGE = re.compile(r"BAD_ARGUMENT|RUN_NOT_FOUND|UNKNOWN_KEY|Unknown tool|validation error")


@pytest.fixture
def spec(tmp_path: Path) -> str:
    (tmp_path / "corpus").mkdir()
    (tmp_path / "corpus" / "text.txt").write_text("A line of text to learn from.\n" * 400)
    path = tmp_path / "a spec.yaml"  # quoted differently by each face
    path.write_text(_SPEC.replace("CORPUS", str(tmp_path / "corpus")))
    return str(path)


def _texts(answer: Any, is_advice: bool = False) -> list[str]:
    if isinstance(answer, str):
        return [answer] if is_advice else []
    if isinstance(answer, dict):
        return [t for k, v in answer.items() for t in _texts(v, is_advice or k in _ADVICE)]
    if isinstance(answer, list):
        return [text for item in answer for text in _texts(item, is_advice)]
    return []


def _codes(text: str) -> list[str]:
    """The code that a text names; all of it where it has no marks."""
    spans = [match[2] for match in re.finditer(r"(`+)(.+?)\1", text)]
    return spans or [text]


class _Executed:
    """Executes what answers advise, each line once."""

    def __init__(self, command: CommandLine, spec: str, folder: Path) -> None:
        self._command = command
        self._placeholders = {"SPEC": spec, "FOLDER": str(folder), "RUN": "adv", "N": "60"}
        self.lines: set[str] = set()
        self.calls: set[str] = set()

    def _filled(self, word: str) -> str:
        return self._placeholders.get(word, word).replace("lr=...", "lr=0.001")

    def of_command_line(self, answer: Any) -> None:
        program = shlex.join(self._program())
        for code in (code for text in _texts(answer) for code in _codes(text)):
            if not code.startswith(program) or code in self.lines:
                continue
            words = [self._filled(word) for word in shlex.split(code)][len(self._program()) :]
            if " ".join(words).startswith(_PASSED_OVER):
                continue
            self.lines.add(code)
            if words[0] == "wait":
                words = [*words, "--timeout", "0"] if "--timeout" not in words else words
                words[words.index("--timeout") + 1] = "0"
            ended, output, errors = self._command._here(*words)
            assert ended in (0, 1, 3, 4), (code, ended, output, errors)
            assert not _USAGE.search(output + errors), (code, output, errors)

    def _program(self) -> list[str]:
        return [sys.executable, "-m", "trainmaster"]

    async def of_tools(self, client: Client, answer: Any) -> None:
        for code in (code for text in _texts(answer) for code in _codes(text)):
            call = re.fullmatch(r"([a-z_]+)\((.*)\)", code.strip("."), re.DOTALL)
            if call is None or code in self.calls:
                continue
            self.calls.add(code)
            result = await client.call_tool(call[1], self._arguments(call[2]))
            text = result.content[0].text  # type: ignore[union-attr]
            assert not (result.is_error and _USAGE.search(text)), (code, text)

    def _arguments(self, text: str) -> dict[str, Any]:
        """JSON by name: `run_id="a", set=["b=1"]`."""
        found: dict[str, Any] = {}
        while text:
            name, _, text = text.partition("=")
            value, end = json.JSONDecoder().raw_decode(text)
            found[name.strip(" ,")] = value
            text = text[end:]
        fill = self._filled
        return {
            name: fill(value)
            if isinstance(value, str)
            else [fill(item) if isinstance(item, str) else item for item in value]
            if isinstance(value, list)
            else value
            for name, value in found.items()
        }


def test_what_answers_and_run_states_advise_is_executed_on_both_faces(
    command: CommandLine, spec: str, tmp_path: Path
) -> None:
    executed = _Executed(command, spec, tmp_path / "fetched")
    line = executed.of_command_line
    line(command("overview"))
    line(command("plan", spec, "--set", "optimizer.lr=0.002"))
    line(command("plan", spec, "--set", "steps=x", code=1))
    line(command("status", "nobody", code=1))
    line(command("alerts", "add", "--when", "state failed", code=1))
    launched = command("launch", spec)
    run = launched["run_id"]
    line(launched)
    line(command("status", run))  # while it runs, or is paused
    assert command("wait", run, "--until", "end", "--timeout", "60")["event"] == "completed"
    for words in (("status", run), ("diagnose", run), ("overview",), ("checkpoints", run)):
        line(command(*words))
    line(command("resume", run, code=1))
    stopping = command("launch", spec, "--set", 'env.TRAINMASTER_STEP_S="30"')
    line(command("stop", stopping["run_id"]))
    line(command("status", stopping["run_id"]))
    line(command("overview"))
    assert {words.split()[3] for words in executed.lines} >= {"launch", "wait", "runs", "fetch"}
    assert any("'" in words for words in executed.lines)  # a path with a space

    async def by_tools() -> None:
        async with connected(command.environment) as client:

            async def tried(tool: str, **arguments: Any) -> None:
                result = await client.call_tool(tool, arguments)
                text = result.content[0].text  # type: ignore[union-attr]
                await executed.of_tools(client, result.structured_content or {"fix": text})

            await tried("overview")
            await tried("plan_run", spec=spec, set=["optimizer.lr=0.002"])
            await tried("get_run", run_id="nobody")
            await tried("get_run", run_id=run)
            await tried("diagnose", run_id=run)
            await tried("resume", run_id=run)
            await tried("get_run", run_id=stopping["run_id"])
            await tried("stop", run_id=stopping["run_id"])

    anyio.run(by_tools)
    assert {call.partition("(")[0] for call in executed.calls} >= {"launch", "list_runs"}
