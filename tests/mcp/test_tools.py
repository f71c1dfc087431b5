"""The list of tools: what it says, and what it costs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp.types import Tool
from support.mcp.mcp_client import connected

from trainmaster.mcp import build_server
from trainmaster.runs.wait import EVENTS
from trainmaster.words.errors import UsageError

_ROOT = Path(__file__).resolve().parents[2]
_GOLDEN = _ROOT / "tests" / "golden" / "mcp_tools.json"
_UPDATE = os.environ.get("UPDATE_GOLDEN") == "1"
_ERAS = pytest.mark.parametrize("era", ["legacy", "2026-07-28"])
_COMMON_WORDS = "run_id spec host set cursor until timeout_s idempotency_key"
_OWN_WORDS = (
    "state label limit detail stream grep width key points verify start check folder pattern "
    "everything apply after_session"
)
_TOPIC_WORDS = (
    "name address jump root cache transport "  # of hosts
    "when to severity "  # of alerts
    "x from_step to_step since at ema rate best framework "  # of metrics and plots
    "log tmux screen pid start "  # of what is attached to
    "keep "  # of what is cleaned
    "offer hours image disk_gib instance force "  # renting
    "gpu count max_usd_h region interruptible provider "  # of what is for rent
)


async def tools_of(environment: dict[str, str], era: str, **options: Any) -> list[Tool]:
    async with connected(environment, era, **options) as client:
        return (await client.list_tools()).tools


@_ERAS
def test_the_tools_are_the_golden_ones(environment: dict[str, str], era: str) -> None:
    tools = anyio.run(lambda: tools_of(environment, era))
    listed = [tool.model_dump(mode="json", by_alias=True, exclude_none=True) for tool in tools]
    text = f"{json.dumps(listed, indent=1, ensure_ascii=False, sort_keys=True)}\n"
    if _UPDATE:
        _GOLDEN.write_text(text)
    assert text == _GOLDEN.read_text()


def test_the_list_costs_a_client_little_context(environment: dict[str, str]) -> None:
    tools = anyio.run(lambda: tools_of(environment, "legacy"))
    described = [
        tool.name + str(tool.description) + json.dumps(tool.input_schema) for tool in tools
    ]
    assert sum(map(len, described)) <= 16_000
    assert max(len(str(tool.description).encode()) for tool in tools) < 2048


def test_every_tool_has_all_four_hints_and_every_parameter_the_common_words(
    environment: dict[str, str],
) -> None:
    tools = anyio.run(lambda: tools_of(environment, "legacy"))
    for tool in tools:
        assert tool.annotations is not None
        hints = tool.annotations.model_dump(by_alias=True)
        assert [
            name for name, value in hints.items() if name.endswith("Hint") and value is None
        ] == []
        known = f"{_COMMON_WORDS} {_OWN_WORDS} {_TOPIC_WORDS}".split()
        assert set(tool.input_schema["properties"]) <= set(known)
        assert tool.input_schema["additionalProperties"] is False


def test_read_only_leaves_only_what_changes_nothing(environment: dict[str, str]) -> None:
    tools = anyio.run(lambda: tools_of(environment, "legacy", read_only=True))
    assert tools
    assert all(tool.annotations and tool.annotations.read_only_hint for tool in tools)
    changing = {"launch", "attach", "stop", "resume", "add_host", "clean_run", "provision"}
    assert not (changing | {"release"}) & {tool.name for tool in tools}
    beaten = {"read_only": True, "toolsets": ("operate", "provision")}
    assert anyio.run(lambda: tools_of(environment, "legacy", **beaten)) == []


def test_toolsets_choose_among_the_tools_in_a_stable_order(environment: dict[str, str]) -> None:
    everything = anyio.run(lambda: tools_of(environment, "legacy"))
    backwards = ("provision", "operate", "observe")
    turned = anyio.run(lambda: tools_of(environment, "legacy", toolsets=backwards))
    operating = anyio.run(lambda: tools_of(environment, "legacy", toolsets=("operate",)))
    assert [tool.name for tool in turned] == [tool.name for tool in everything]
    assert [tool.name for tool in operating] == [
        "launch",
        "attach",
        "stop",
        "resume",
        "fetch_files",
        "clean_run",
        "add_host",
        "create_alert",
    ]
    renting = anyio.run(lambda: tools_of(environment, "legacy", toolsets=("provision",)))
    assert [tool.name for tool in renting] == ["provision", "release"]
    with pytest.raises(UsageError, match="destroy"):
        build_server(environment, toolsets=("destroy",))


@pytest.mark.parametrize("read_only", [False, True])
def test_the_instructions_are_short(environment: dict[str, str], read_only: bool) -> None:
    instructions = build_server(environment, read_only=read_only).instructions
    assert instructions is not None
    assert len(instructions.encode()) < 2048
    assert ("read-only" in instructions) is read_only


def test_importing_the_server_imports_no_service() -> None:
    script = (
        "import sys, trainmaster.mcp;"
        "heavy = {'jinja2', 'sqlite3', 'torch',"
        " 'trainmaster.runs.launch', 'trainmaster.sync.workspace'};"
        "print(sorted(heavy & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.stdout == "[]\n"


def test_waiting_names_every_event(environment: dict[str, str]) -> None:
    tools = anyio.run(lambda: tools_of(environment, "legacy"))
    waiting = next(tool for tool in tools if tool.name == "wait_for_event")
    described = waiting.input_schema["properties"]["until"]["description"]
    assert [event for event in EVENTS if event not in described] == []
