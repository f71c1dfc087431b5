"""Runs the commands of a page of docs/ in order, as a reader types them.

Trainings run on the debug host wherever the page has them run, shortened to some steps; providers
and Kaggle are stand-ins. What changes the machine's own timers, asks another machine or connects an
agent is parsed only.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from support.errors.command_lines import refusal
from support.runs.running_run import CommandLine, write_corpus
from support.train.model_folders import write_model

_STEPS = 60
_ONLY_PARSED = ("keeper install", "hosts check gpu1", "install claude-code", "--after-session",
                "--host second", "sample my-gpt")  # fmt: skip
_OTHER_PROGRAMS = ("pip install ", "make install", ". .venv/", "mkdir ", "cat ")
_AGREED = ("provision", "release", "clean")


class PageStage:
    """A folder with what pages need, and a home. `ran`: the commands that were run."""

    def __init__(self, home: Path, folder: Path, variables: dict[str, str], settings: str) -> None:
        self.ran: list[str] = []
        self._folder = folder
        home.mkdir(exist_ok=True)
        (home / "settings.yaml").write_text(
            f"destinations:\n  ops: {{kind: command, command: [cat]}}\n{settings}"
        )
        self._command = CommandLine(home, "debug")
        self._command.environment |= variables
        furnish(folder)

    def play(
        self, page: str, *, faults: str = "", step_s: float = 0.0, steps: int = _STEPS
    ) -> None:
        """Write the page's specs and run its commands; `faults` strike its first run.

        Raises:
            AssertionError: a command ends with an error, or is not one of ours.
        """
        for name, text in re.findall(r"```yaml\n# (\S+)\n(.*?)```", page, re.DOTALL):
            self._write(name, text, faults, step_s, steps)
        for command in commands_of(page):
            self._play(command)

    def _play(self, command: str) -> None:
        refused = refusal(shlex.split(command))
        assert refused is None, (command, refused)
        if any(words in command for words in _ONLY_PARSED):
            return
        words = shlex.split(command)
        if words[0] in ("launch", "resume") and "--host" in words:
            at = words.index("--host")
            del words[at : at + 2]
        if words[0] in _AGREED:
            words.append("--yes")
        self._command(*words)
        self.ran.append(command)

    def answer(self, *words: str) -> dict[str, Any]:
        """What a command answers after the page."""
        return self._command(*words)

    def _write(self, name: str, text: str, faults: str, step_s: float, steps: int) -> None:
        text = re.sub(r"(?<!_)steps: \d{3,}", f"steps: {steps}", text)
        text = re.sub(r"^limits: .*\n", "", text, flags=re.MULTILINE)  # it costs nothing here
        variables = f'{{TRAINMASTER_STEP_S: "{step_s}", TRAINMASTER_FAULTS: "{faults}"}}'
        (self._folder / name).write_text(f"{text}host: debug\nenv: {variables}\n")


def furnish(folder: Path) -> None:
    """What pages take for granted: a corpus, a model, rows, a log."""
    for name in ("corpus", "general", "code", "medical"):
        write_corpus(folder / name)
    write_model(folder / "base")
    rows = '{"prompt": "What is a checkpoint?", "completion": "A state that was saved."}\n'
    (folder / "chats.jsonl").write_text(rows * 200)
    log = "".join(f"iter {n}: loss {4 - n / 50:.4f}, time 51.20ms\n" for n in range(50))
    (folder / "train.log").write_text(log)


def commands_of(page: str) -> Iterator[str]:
    """The words behind `trainmaster` of the page's commands, comments left out.

    Raises:
        AssertionError: another program's command that is not known here.
    """
    for block in re.findall(r"```console\n(.*?)```", page, re.DOTALL):
        for line in _typed(block.splitlines()):
            command = re.sub(r"\s+#.*", "", line)
            if not command.startswith(_OTHER_PROGRAMS):
                assert command.startswith("trainmaster "), command
                yield command.removeprefix("trainmaster ")


def _typed(lines: Sequence[str]) -> Iterator[str]:
    return (line.removeprefix("$ ") for line in lines if line.startswith("$ "))
