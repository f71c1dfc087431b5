"""Executes what answers advise, as the face that shows it gives it, placeholders filled."""

from __future__ import annotations

import json
import re
import shlex
import sys
from pathlib import Path
from typing import Any

from mcp import Client
from support.runs.running_run import CommandLine

# What needs no stand-in, and ends by itself.
_PASSED_OVER = ("demo", "watch", "monitor", "keeper", "hosts add", "board")
_ADVICE = ("next_step", "fix", "advice", "remedy", "note")
# Before files are removed for good.
_ASKS = "there is nobody to ask"
_CALL = re.compile(r"([a-z_]+)\(((?:\w+=.*)?)\)", re.DOTALL)
_SET = re.compile(r"set=\[")  # the option alone, for whatever starts a run
_USAGE = re.compile(r"BAD_ARGUMENT|RUN_NOT_FOUND|UNKNOWN_KEY|Unknown tool|validation error")


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


def _shape(code: str) -> str:
    """Alike for all runs."""
    return re.sub(r"[\w-]+-abcdef", "RUN", code)


class ExecutedAdvice:
    """Executes what answers advise, each line once, and of planted runs one of a kind."""

    def __init__(self, command: CommandLine, spec: str, folder: Path) -> None:
        self._command = command
        self._placeholders = {
            "SPEC": spec,
            "FOLDER": str(folder),
            "FILE": spec,
            "RUN": "adv",
            "N": "60",
            "HOST": "local",
        }
        self.lines: set[str] = set()
        self.calls: set[str] = set()

    def _filled(self, word: str) -> str:
        key, _, value = word.rpartition("=")
        filled = self._placeholders.get(value, value)
        return (f"{key}={filled}" if key else filled).replace("lr=...", "lr=0.001")

    def of_command_line(self, answer: Any) -> None:
        program = shlex.join(self._program())
        for shown in (code for text in _texts(answer) for code in _codes(text)):
            code = f"{program} plan SPEC {shown}" if shown.startswith("--set ") else shown
            if not code.startswith(program) or _shape(code) in self.lines:
                continue
            words = [self._filled(word) for word in shlex.split(code)][len(self._program()) :]
            if " ".join(words).startswith(_PASSED_OVER):
                continue
            self.lines.add(_shape(code))
            if words[0] == "wait":
                words = [*words, "--timeout", "0"] if "--timeout" not in words else words
                words[words.index("--timeout") + 1] = "0"
            ended, output, errors = self._command._here(*words)
            if _ASKS in errors:
                continue
            assert ended in (0, 1, 3, 4), (code, ended, output, errors)
            assert not _USAGE.search(output + errors), (code, output, errors)

    def _program(self) -> list[str]:
        return [sys.executable, "-m", "trainmaster"]

    async def of_tools(self, client: Client, answer: Any) -> None:
        for shown in (code for text in _texts(answer) for code in _codes(text)):
            code = f'plan_run(spec="SPEC", {shown})' if _SET.match(shown) else shown
            call = _CALL.fullmatch(code.rstrip("."))  # a method of Python's begins with a point
            if call is None or _shape(code) in self.calls:
                continue
            self.calls.add(_shape(code))
            bound = {"timeout_s": 0} if call[1] == "wait_for_event" else {}
            result = await client.call_tool(call[1], self._arguments(call[2]) | bound)
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
