"""The board for clients with MCP Apps, in a frame that reaches nothing, as they show it."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import anyio
import pytest
from support.board.browser import opened_browser
from support.board.planted_board import plant_board
from support.mcp.mcp_client import connected
from support.mcp.node_tools import MODULES

from trainmaster.sync.workspace import open_workspace

_EXTENSION, _MIME = "io.modelcontextprotocol/ui", "text/html;profile=mcp-app"
# The extension's own schema, and its policy for a page that names no domains.
_SCHEMA = MODULES / "@modelcontextprotocol/ext-apps/dist/src/generated/schema.json"
_POLICY = (
    "default-src 'none'; script-src 'self' 'unsafe-inline'; style-src 'self' 'unsafe-inline'; "
    "img-src 'self' data:; media-src 'self' data:; connect-src 'none'"
)
# Put into the page, since a frame of another origin shows the client nothing.
_PROBE = """<script>addEventListener("message", ({ data }) => {
  if (data === "read") parent.postMessage({ text: document.body.innerText }, "*");
  if (data === "refresh") document.querySelector("button").click();
});</script>"""
# A client: answers the frame, and keeps what it says. `RESULTS`: by tool, what a call gives.
_CLIENT = """
window.said = [];
const frame = document.createElement("iframe");
frame.setAttribute("sandbox", "allow-scripts");
const post = (message) => frame.contentWindow.postMessage({ jsonrpc: "2.0", ...message }, "*");
window.give = (tool) => post({ method: "ui/notifications/tool-result", params: RESULTS[tool] });
window.ask = (word) => frame.contentWindow.postMessage(word, "*");
window.leave = () => post({ id: 7, method: "ui/resource-teardown", params: {} });
addEventListener("message", ({ data }) => {
  said.push(data);
  if (data.method === "ui/initialize") post({ id: data.id, result: {
    protocolVersion: "2026-01-26", hostInfo: { name: "client", version: "1" },
    hostCapabilities: { serverTools: {} }, hostContext: { theme: "dark" } } });
  if (data.method === "tools/call") post({ id: data.id, result: RESULTS[data.params.name] });
});
frame.srcdoc = PAGE;
document.body.replaceChildren(frame);
"""
_REQUESTS = {
    "ui/initialize": "McpUiInitializeRequest",
    "ui/notifications/initialized": "McpUiInitializedNotification",
    "ui/notifications/size-changed": "McpUiSizeChangedNotification",
}


@pytest.fixture
def offered(tmp_path: Path) -> tuple[str, dict[str, Any]]:
    """The page as the server gives it, and by tool a result that it draws."""
    environment = {"TRAINMASTER_HOME": str(tmp_path / "home")}
    with open_workspace(environment) as workspace:
        plant_board(workspace)

    async def read() -> tuple[str, dict[str, Any]]:
        async with connected(environment, "auto") as client:
            tools = {tool.name: tool for tool in (await client.list_tools()).tools}
            named = {
                name: tool.meta["ui"]["resourceUri"] for name, tool in tools.items() if tool.meta
            }
            (uri,) = {*named.values()}
            (resource,) = (await client.list_resources()).resources
            assert (str(resource.uri), resource.mime_type) == (uri, _MIME)
            assert _EXTENSION in (client.server_capabilities.extensions or {})
            (content,) = (await client.read_resource(uri)).contents
            assert content.mime_type == _MIME
            results = {name: await client.call_tool(name, {}) for name in named}
            shown = {
                name: result.model_dump(mode="json", by_alias=True, exclude_none=True)
                for name, result in results.items()
            }
            return str(content.text), shown  # type: ignore[union-attr]

    return anyio.run(read)


def test_a_client_with_apps_shows_the_board_from_the_results_alone(
    offered: tuple[str, dict[str, Any]], tmp_path: Path
) -> None:
    from jsonschema import Draft202012Validator

    page, results = offered
    assert set(results) == {"overview", "list_runs"}
    assert not re.search(r"\b(src|href)=|url\(|\bimport\b|\bfetch\b", page)
    policy = f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">'
    framed = json.dumps(page.replace("<head>", f"<head>{policy}{_PROBE}"))
    script = _CLIENT.replace("RESULTS", json.dumps(results)).replace("PAGE", framed)
    with opened_browser(tmp_path) as browser:
        browser.open("about:blank")
        browser.ask(f"(() => {{{script}}})()")
        browser.until(has_sent("ui/notifications/initialized"))
        for tool in ("overview", "list_runs"):
            browser.ask(f"give({tool!r})")
            for name in wanted(results[tool]["structuredContent"]):
                browser.until(f"(ask('read'), said.some((one) => one.text?.includes({name!r})))")
            browser.ask("ask('refresh')")
            browser.until(f"said.some((one) => one.params?.name === {tool!r})")
        browser.ask("leave()")
        browser.until("said.some((one) => one.id === 7 && one.result)")
        assert browser.ask(has_sent("ui/notifications/size-changed"))
        said = browser.ask("said")
        assert browser.said == []
    schemas = json.loads(_SCHEMA.read_text())["$defs"]
    for message in said:
        if str(message.get("method")).startswith("ui/"):
            body = {key: message[key] for key in ("method", "params")}
            Draft202012Validator(schemas[_REQUESTS[message["method"]]]).validate(body)


def has_sent(method: str) -> str:
    return f"said.some((one) => one.method === {method!r})"


def wanted(answer: dict[str, Any]) -> list[str]:
    """What is to be read of an answer."""
    if "runs" in answer:
        return [run["name"] for run in answer["runs"]]
    return [line.split(" ")[0] for line in [*answer["attention"], *answer["running"]]]
