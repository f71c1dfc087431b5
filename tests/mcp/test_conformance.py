"""The protocol's own suite and inspector against the server, over HTTP and stdio."""

from __future__ import annotations

import json
import re
import sys
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import anyio
import pytest
from support.mcp.http_server import serving, settings, token_for
from support.mcp.node_tools import Check, Ended, conformance_of, run_tool, scenario_of
from support.mcp.stdio_bridge import bridged

from trainmaster.mcp.toolsets import TOOLSETS

pytestmark = [pytest.mark.slow, pytest.mark.engine]

_DOCS = Path(__file__).resolve().parents[2] / "docs" / "agents.md"
_NEEDS_A_FIXTURE = r"tools-call-(?!simple-text|error).*|json-schema-2020-12|elicitation-sep.*|"
_NEEDS_A_FIXTURE += r"server-sse-polling|http-custom-header-server-validation"
# Scenarios that don't apply, as docs/agents.md lists them: what they need, and their names.
_NOT_APPLYING = {
    "tools of the suite's own test server": _NEEDS_A_FIXTURE,
    "its own tools that ask, sample or list roots": (
        "input-required-result-(basic-.*|request-state|multiple-.*|multi-round|non-tool-request|"
        "result-type|tampered-state|capability-check)"
    ),
    "resources and prompts": "resources-(read|templates|subscribe|unsubscribe).*|prompts-get-.*",
    "logging and completions": "logging-set-level|completion-complete",
    "the tasks extension": "tasks-(?!status-notifications).*",
}
# Checks within scenarios that apply.
_NOT_APPLYING_CHECKS = {
    "sep-2575-server-rejects-undeclared-capability",  # of a tool of the suite's own server
    "sep-2575-missing-capability-http-400",
}
# Scenarios that the bridge between HTTP and stdio would answer, not the server.
_ABOUT_HTTP = "dns-rebinding-protection|http-header-validation|server-s(ession-lifecycle|se-.*)"


def applies(scenario: str) -> bool:
    return not any(re.fullmatch(names, scenario) for names in _NOT_APPLYING.values())


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[Check]]:
    """What the suite finds out over each transport; both at once, since it mostly waits."""
    checks: dict[str, list[Check]] = {}

    async def over(transport: str, server: AbstractAsyncContextManager[str], folder: Path) -> None:
        async with server as url:
            checks[transport] = await conformance_of(url, folder)

    async def scenario() -> None:
        homes = {name: tmp_path_factory.mktemp(name) for name in ("http", "stdio")}
        at = {name: {"TRAINMASTER_HOME": str(folder / "h")} for name, folder in homes.items()}
        settings(homes["http"] / "h", "server: {requests_per_minute: 100000}\n")
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(over, "http", serving(at["http"], authorized=False), homes["http"])
            tasks.start_soon(over, "stdio", bridged(at["stdio"]), homes["stdio"])

    anyio.run(scenario)
    return checks


def test_every_scenario_that_applies_passes_over_http(found: dict[str, list[Check]]) -> None:
    checks = found["http"]
    failed = [one for one in checks if one.failed and one.id not in _NOT_APPLYING_CHECKS]
    assert [one for one in failed if applies(one.scenario)] == []
    names = {one.scenario for one in checks}
    passed = {name for name in names if applies(name)}
    assert len(passed) >= 19
    assert {"server-initialize", "server-stateless", "http-header-validation"} <= passed
    # A scenario that passes by now is one that applies.
    assert {name for name in names if not applies(name)} == {one.scenario for one in failed}


def test_every_scenario_that_applies_and_is_not_about_http_passes_over_stdio(
    found: dict[str, list[Check]],
) -> None:
    checks = [
        one
        for one in found["stdio"]
        if applies(one.scenario)
        and not re.fullmatch(_ABOUT_HTTP, one.scenario)
        and one.id not in _NOT_APPLYING_CHECKS
    ]
    assert [one for one in checks if one.failed and "-http-" not in one.id] == []
    passed = {one.scenario for one in checks}
    assert len(passed) >= 15
    assert {"server-initialize", "server-stateless", "caching", "tools-call-error"} <= passed
    assert sum(not one.failed for one in checks if one.scenario == "server-stateless") >= 17


@pytest.mark.parametrize("name", ["completion-complete", "json-schema-2020-12"])
@pytest.mark.parametrize("time", ["2026-11-23T12-54-11-205Z", "2026-11-20T20-20-20-020Z"])
def test_a_scenario_has_its_name_at_every_time_of_day(name: str, time: str) -> None:
    assert scenario_of(Path(f"server-{name}-{time}/checks.json")) == name


def test_the_page_lists_what_does_not_apply() -> None:
    page = _DOCS.read_text()
    assert all(f"| {reason} |" in page for reason in _NOT_APPLYING)


@pytest.mark.smoke
def test_the_inspector_lists_and_calls_over_stdio(home: Path, tmp_path: Path) -> None:
    server = (sys.executable, "-m", "trainmaster", "--home", str(home), "mcp")

    async def scenario() -> None:
        listed = await run_tool(
            *("mcp-inspector", "--cli", *server, "--method", "tools/list"),
            *("--strict", "--format", "json"),
            home=tmp_path,
        )
        assert listed.code == 0, listed.err  # --strict: no schema that clients can't read
        names = [tool["name"] for tool in result_of(listed)["tools"]]
        assert names == [one.name for tools in TOOLSETS.values() for one in tools]

    anyio.run(scenario)


def test_the_inspector_calls_over_http_with_a_token(home: Path, tmp_path: Path) -> None:
    environment = {"TRAINMASTER_HOME": str(home)}

    async def call(url: str, token: str, tool: str, *arguments: str) -> Ended:
        return await run_tool(
            *("mcp-inspector", "--cli", url, "--transport", "http", "--format", "json"),
            *("--header", f"Authorization: Bearer {token}", "--method", "tools/call"),
            *("--tool-name", tool, *arguments),
            home=tmp_path,
        )

    async def scenario() -> None:
        token = token_for(environment, "ann", "read")
        async with serving(environment) as url:
            called = await call(url, token, "list_runs")
            assert called.code == 0, called
            assert result_of(called)["structuredContent"] == {"runs": []}
            beyond = await call(url, token, "stop", "--tool-arg", "run_id=x")
            assert beyond.code != 0
            assert "tool_not_found" in beyond.err  # it calls only what is listed
            refused = await call(url, "tmk_wrong", "list_runs")
            assert refused.code != 0
            assert "auth_required" in refused.err  # it takes the 401 for what it is

    anyio.run(scenario)


def result_of(ended: Ended) -> dict[str, object]:
    found: dict[str, object] = json.loads(ended.out)["result"]
    return found
