"""The list of tools: what it says, and what it costs."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp.types import Tool
from support.mcp.mcp_client import connected

from trainmaster.errors.errors import UsageError
from trainmaster.mcp import build_server
from trainmaster.mcp.instructions import instructions_for
from trainmaster.mcp.toolsets import PERSONAS, TOOLSETS, chosen_tools
from trainmaster.runs.events.event_watch import EVENTS

_ROOT = Path(__file__).resolve().parents[2]
_GOLDEN = _ROOT / "tests" / "golden" / "mcp_tools.json"
_UPDATE = os.environ.get("UPDATE_GOLDEN") == "1"
_ERAS = pytest.mark.parametrize("era", ["legacy", "2026-07-28"])
_COMMON_WORDS = "run_id spec host set cursor until timeout_s idempotency_key"
_OWN_WORDS = (
    "code state label limit detail stream grep width key points verify start check folder pattern "
    "everything apply speed after_session allow_py_spy ends_after data python rehearse"
)
_TOPIC_WORDS = (
    "name address jump root cache transport slurm "  # of hosts
    "when to severity "  # of alerts
    "x from_step to_step since at ema rate best framework "  # of metrics and plots
    "log tmux screen pid start "  # of what is attached to
    "keep "  # of what is cleaned
    "on "  # of what is planned for
    "prompt max_tokens temperature seed count chat "  # of text from a model
    "offer hours image disk_gib instance force "  # renting
    "gpu count max_usd_h region interruptible provider volume "  # of what is for rent
)

ALL_TOOLS = [one.name for tools in TOOLSETS.values() for one in tools]


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


def test_descriptions_name_tools_that_exist() -> None:
    verbs = "list|get|plan|query|tail|wait|fetch|clean|add|create|inspect"
    for definition in (one for tools in TOOLSETS.values() for one in tools):
        text = definition.function.__doc__ or ""
        named = re.findall(rf"\b(?:{verbs})_[a-z_]+", text)
        assert set(named) <= set(ALL_TOOLS), definition.name


def names_of(**options: Any) -> list[str]:
    return [one.name for one in chosen_tools(**options)]


def test_read_only_leaves_only_what_changes_nothing(environment: dict[str, str]) -> None:
    tools = anyio.run(lambda: tools_of(environment, "legacy", read_only=True))
    assert all(tool.annotations and tool.annotations.read_only_hint for tool in tools)
    names = [tool.name for tool in tools]
    assert names == names_of(toolsets=("observe", "plan"))
    changing = {"launch", "attach", "stop", "resume", "add_host", "clean_run", "provision"}
    assert not (changing | {"release"}) & set(names)
    tools = ("provision", "get_run")
    assert names_of(read_only=True, toolsets=("operate",), tools=tools) == ["get_run"]
    with pytest.raises(UsageError, match="No tool is left"):
        build_server(environment, read_only=True, toolsets=("operate", "provision"))


def test_toolsets_personas_and_tools_are_offered_in_a_stable_order() -> None:
    assert names_of() == ALL_TOOLS
    assert names_of(toolsets=("provision", "operate", "plan", "observe")) == ALL_TOOLS
    for name, persona in PERSONAS.items():
        assert names_of(toolsets=(name,)) == [
            one.name for toolset in persona.toolsets for one in TOOLSETS[toolset]
        ]
    assert names_of(toolsets=("renter",)) == ALL_TOOLS
    assert names_of(tools=("stop", "get_run")) == ["get_run", "stop"]
    observing = [one.name for one in TOOLSETS["observe"]]
    assert names_of(toolsets=("observer",), tools=("stop",)) == [*observing, "stop"]


def test_unknown_toolsets_and_tools_are_refused_with_the_known_ones() -> None:
    with pytest.raises(UsageError) as refused:
        chosen_tools(("observe", "destroy"))
    assert refused.value.field == "toolsets" and "destroy" in refused.value.message
    assert all(name in refused.value.fix for name in (*TOOLSETS, *PERSONAS))
    with pytest.raises(UsageError) as refused:
        chosen_tools(tools=("lunch",))
    assert refused.value.field == "tools" and ", launch," in refused.value.fix


def test_a_server_whose_tools_only_read_is_read_only(environment: dict[str, str]) -> None:
    for persona, is_read_only in (("observer", True), ("operator", False)):
        instructions = build_server(environment, toolsets=(persona,)).instructions
        assert instructions is not None and ("read-only" in instructions) is is_read_only


@pytest.mark.parametrize("toolset", [*TOOLSETS, *PERSONAS])
def test_the_instructions_are_short_and_name_only_tools_that_are_offered(toolset: str) -> None:
    offered = names_of(toolsets=(toolset,))
    text = instructions_for(offered, read_only=True)
    assert len(text.encode()) < 2048
    named = {name for name in ALL_TOOLS if "_" in name and name in text}
    assert named <= set(offered)


def test_importing_the_server_imports_no_service() -> None:
    script = (
        "import sys, trainmaster.mcp;"
        "heavy = {'jinja2', 'sqlite3', 'torch',"
        " 'trainmaster.runs.launch.launch', 'trainmaster.sync.workspace'};"
        "print(sorted(heavy & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.stdout == "[]\n"


def test_waiting_names_every_event(environment: dict[str, str]) -> None:
    tools = anyio.run(lambda: tools_of(environment, "legacy"))
    waiting = next(tool for tool in tools if tool.name == "wait_for_event")
    described = waiting.input_schema["properties"]["until"]["description"]
    assert [event for event in EVENTS if event not in described] == []
