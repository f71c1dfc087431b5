"""Runs the command lines that skills name, in a home with runs of the debug host."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from support.runs.running_run import SPEC, CommandLine, write_corpus

_DEBUG = "host: debug\nenv: {{TRAINMASTER_STEP_S: '{step_s}', TRAINMASTER_FAULTS: '{faults}'}}\n"
# Reaches other machines, people or the system's timers: tests of these have stand-ins.
_OUTSIDE = (
    "adopt", "approve", "attach", "costs", "hosts add", "hosts check", "hosts gc", "hosts recover",
    "hosts remove", "hosts trust", "inspect", "keeper install", "monitor", "offers", "provision",
    "release",
)  # fmt: skip
# Needs several GPUs, another host, or Kaggle.
_ELSEWHERE = (
    "compute.strategy",
    "--host HOST",
    "--host NAME",
    "--after-session",
    "sample RUN --prompt",
)
_IN_ORDER = ("stop", "resume", "clean")


class SkillCommands:
    """`ran`: the command lines that were run: all but those of the outside."""

    def __init__(self, home: Path, folder: Path) -> None:
        self.ran: list[str] = []
        self._command = CommandLine(home, "debug")
        self._folder = folder
        home.mkdir()
        settings = "destinations:\n  ops: {kind: command, command: [cat]}\n"
        (home / "settings.yaml").write_text(settings)
        self._spec = self._write("gpt")
        self._done = self._launched("done")
        self._failed = self._launched("failed", faults="oom@30", recovery="{max_restarts: 0}")
        self._open = self._launched("open", step_s=0.3, until="checkpoint", steps="100000")
        self._log = folder / "theirs.log"
        self._log.write_text("".join(f"step {n} loss {4 - n / 99:.3f}\n" for n in range(99)))

    def run_all(self, commands: list[str]) -> None:
        """Each one once: what ends or removes a run after what reads it.

        Raises:
            AssertionError: one ends with an error.
        """
        for command in sorted(commands, key=_place):
            if not command.startswith(_OUTSIDE) and not any(one in command for one in _ELSEWHERE):
                self._run(command)

    def _run(self, command: str) -> None:
        words = command.split()
        given = {**self._values(command), "RUN": self._run_for(words)}
        arguments = [given.get(word, word) for word in shlex.split(command)]
        agreed = ["--yes"] if words[0] == "clean" else []  # as its user does
        self._command(*(word for word in arguments if word != "--json"), *agreed)
        self.ran.append(command)

    def _values(self, command: str) -> Mapping[str, str]:
        finding = {}
        if "FINDING" in command:
            (found,) = self._command("diagnose", self._failed)["findings"][:1]
            finding = {"FINDING:PATCH": f"{found['id']}:{found['patches'][0]['id']}"}
        return {
            "SPEC": str(self._spec),
            "KEY": "a-key",
            "FILE": str(self._log),
            "FOLDER": str(self._folder / f"out-{len(self.ran)}"),
            "./base": str(self._folder / "base"),
            **finding,
        }

    def _run_for(self, words: list[str]) -> str:
        """A run in the state that the command is for."""
        if "--apply" in words:
            return self._failed
        if words[0] not in ("stop", "resume"):
            return self._done
        if words[0] == "resume":
            self._command("stop", self._open)
            self._command("wait", self._open, "--until", "end")
        return self._open

    def _launched(self, name: str, *, until: str = "end", **changes: Any) -> str:
        launched = self._command("launch", str(self._write(name, **changes)))
        self._command("wait", launched["run_id"], "--until", until, "--cursor", launched["cursor"])
        return str(launched["run_id"])

    def _write(self, name: str, *, step_s: float = 0.0, faults: str = "", **changes: str) -> Path:
        text = SPEC.replace("CORPUS", str(write_corpus(self._folder / "corpus")))
        kept = [line for line in text.splitlines() if line.split(":")[0] not in ("name", *changes)]
        kept += [f"name: {name}", *(f"{field}: {value}" for field, value in changes.items())]
        path = self._folder / f"{name}.yaml"
        path.write_text("\n".join(kept) + "\n" + _DEBUG.format(step_s=step_s, faults=faults))
        return path


def _place(command: str) -> tuple[int, str]:
    name = command.split(maxsplit=1)[0]
    return (_IN_ORDER.index(name) + 1 if name in _IN_ORDER else 0, command)
