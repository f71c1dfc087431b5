"""Every command that advice anywhere names is executed on both faces, placeholders filled.

Clouds and Kaggle are stand-ins, and nobody agrees to what would spend or destroy.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp import Client
from support.errors.advice_sources import advised
from support.kaggle.site import serving_kaggle
from support.mcp.mcp_client import connected
from support.providers.runpod_site import RunPodSite
from support.runs.running_run import CommandLine

from trainmaster.errors.advice import call_of
from trainmaster.mcp.definition import build_tool
from trainmaster.mcp.toolsets import TOOLSETS
from trainmaster.store.host_record import HostRecord
from trainmaster.sync.workspace import open_workspace

pytestmark = pytest.mark.long

_TOOLS = {one.name for definitions in TOOLSETS.values() for one in map(build_tool, definitions)}
_OFFER = "runpod:nvidia-geforce-rtx-4090:1x:community"
_SPEC = """\
name: adv
framework: nanogpt
model: {n_layer: 1, n_head: 2, d_model: 32}
data: {sources: [{path: CORPUS}], seq_len: 32}
batch: {tokens: 256}
steps: 40
checkpoint: {every: 20}
host: debug
"""
# They stay in the foreground, or change this account.
_LASTING = ("demo", "board", "monitor", "keeper install")
# Names of commands, in sentences about them.
_NAMES_ALONE = ("attach", "approve", "wait")
_USAGE = re.compile(r"BAD_ARGUMENT|RUN_NOT_FOUND|UNKNOWN_KEY|Unknown tool|validation error")
# A person is asked before files are removed; the played run has no other host and no phases, is
# not a range test, and is one of our own, whose model and GPUs nobody has to state.
_REFUSALS = re.compile(
    "there is nobody to ask|can't be migrated to debug|`phases` has no parts"
    "|not a learning-rate test|is not a rehearsal|and the speed of [a-z0-9-]+ are on record"
)
# What stands for X behind a command, as its first word and as its second.
_OF_COMMANDS = {
    "launch": ("SPEC",), "plan": ("SPEC",), "adopt": ("DIR",), "trust": ("PATH",),
    "release": ("INSTANCE",), "lr-test": ("SPEC",), "approve": ("ID",), "alerts list": ("RUN",),
    "alerts remove": ("NAME",), "alerts test": ("NAME",), "mcp-tokens remove": ("NAME",),
    "hosts add": ("NEW", "ADDRESS"), "hosts recover": ("HOST", "RUN"),
}  # fmt: skip
_OF_OPTIONS = {
    "--apply X:X": "0a0a0a0a:halve_micro_batch",
    "--apply X": "0a0a0a0a",
    "--set X": "seed=1",
    "--set steps=X": "steps=60",
    "--until X": "end",
    "--until X,end": "checkpoint,end",
    "--label X=X": "a=b",
    "--label array=X": "array=b",
    "--volume X": "data:10",
    "--root X": "/data",
    "--host X": "gpu1",
    "--gpu X": "h100",
    "--cursor X": "CURSOR",
    "--spec X": "SPEC",
    "--report X": "RUN",
    "--on X": "h100:8",
    "--set optimizer.lr=X": "optimizer.lr=0.001",
    "--from X": "final",
    "--steps X": "20",
    "--count X": "2",
}


@dataclass
class _Stage:
    """A home with a run, a host and stand-ins, and a value for each placeholder."""

    command: CommandLine
    values: dict[str, str]

    def filled(self, words: tuple[str, ...]) -> tuple[str, ...]:
        """The command with its placeholders' values; one that waits does so for no time."""
        grouped = " ".join(words[:2])
        name = grouped if grouped.startswith(("hosts ", "alerts ", "mcp-tokens ")) else words[0]
        begin = len(name.split())
        places = iter(_OF_COMMANDS.get(name, ("HOST",) if name.startswith("hosts") else ("RUN",)))
        line = list(words[:begin])
        for before, word in zip(words[begin - 1 :], words[begin:], strict=False):
            if "X" not in re.split(r"[^A-Z]", word):
                line.append(self._value(word))
            elif before.startswith("--"):
                line.append(self._value(_OF_OPTIONS[f"{before} {word}"]))
            else:
                line.append(self.values[next(places, "PATTERN")])
        if words[0] == "wait":
            line = line[: line.index("--timeout")] if "--timeout" in line else line
            line += ["--timeout", "0"]
        return tuple(line)

    def _value(self, word: str) -> str:
        return self.values.get(word, word.replace("lr=...", "lr=0.001").replace("=N", "=1"))


@pytest.fixture
def stage(command: CommandLine, tmp_path: Path) -> Iterator[_Stage]:
    (tmp_path / "corpus").mkdir()
    (tmp_path / "corpus" / "text.txt").write_text("A line of text to learn from.\n" * 400)
    spec, log = tmp_path / "a spec.yaml", tmp_path / "train.log"
    spec.write_text(_SPEC.replace("CORPUS", str(tmp_path / "corpus")))
    log.write_text("".join(f"it {step} L={3 - step / 10}\n" for step in range(1, 9)))
    with RunPodSite() as site, serving_kaggle(tmp_path / "kaggle") as kaggle:
        command.home.mkdir(exist_ok=True)
        (command.home / "settings.yaml").write_text(f"cloud_urls: {{runpod: {site.url}}}\n")
        command.environment |= {**kaggle.environment, "RUNPOD_API_KEY": site.account_key}
        with open_workspace(command.environment) as workspace:
            workspace.control.put_host(HostRecord("gpu1", "127.0.0.1", port=9), 1.0)
        run = command("launch", str(spec))["run_id"]
        command("wait", run, "--until", "end", "--timeout", "60")
        folder = str(tmp_path / "a folder")
        values = {
            "RUN": run, "SPEC": str(spec), "HOST": "gpu1", "NAME": "gpu1", "NEW": "gpu2",
            "ADDRESS": "127.0.0.1:9", "USER@ADDRESS": "me@127.0.0.1:9", "FOLDER": folder,
            "DIR": folder, "PATH": str(log), "FILE": str(log), "LINE": "it {step} L={loss}",
            "OFFER": _OFFER, "H": "1", "INSTANCE": "gpu1", "ID": "q-aaaaaa", "TEXT": "a b",
            "FEATURES": "a100", "STEP": "latest", "FIELD=VALUE": "seed=2", "PATTERN": "final",
            "CURSOR": command("overview")["cursor"],
        }  # fmt: skip
        yield _Stage(command, values)


def test_every_advised_command_runs_on_both_faces(stage: _Stage) -> None:
    lines = {
        stage.filled(one.words)
        for one in advised()
        if not one.is_option and one.words[0] not in ("X", "--help")
        if not " ".join(one.words).startswith(_LASTING) and " ".join(one.words) not in _NAMES_ALONE
    }
    assert len(lines) > 60

    async def by_tools() -> None:
        async with connected(stage.command.environment) as client:
            for line in sorted(lines):
                if (call := call_of(line, _TOOLS)) is not None:
                    await execute(client, *call)

    async def execute(client: Client, tool: str, arguments: dict[str, Any]) -> None:
        bound = {"timeout_s": 0} if tool == "wait_for_event" else {}
        result = await client.call_tool(tool, arguments | bound)
        text = result.content[0].text  # type: ignore[union-attr]
        if result.is_error and _USAGE.search(text) and not _REFUSALS.search(text):
            refused.append(f"{tool}({arguments}): {text}")

    refused: list[str] = []
    anyio.run(by_tools)
    for line in sorted(lines):
        ended, output, errors = stage.command._here(*line)
        is_usage = ended not in (0, 1, 3, 4) or _USAGE.search(output + errors)
        if is_usage and not _REFUSALS.search(errors):
            refused.append(f"{shlex.join(line)}: {ended} {output}{errors}")
    assert not refused, "\n".join(refused)
