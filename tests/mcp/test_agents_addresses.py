"""No server that the settings don't name is asked because a spec names it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from mcp import Client
from support.mcp.agent import Agent
from support.mcp.mcp_client import error_of
from support.train.hub_server import Hub, serving

pytestmark = pytest.mark.attack

_HUB_SPEC = """\
name: from-hub
framework: hf
model: {hub: owner/model}
data: {sources: [{path: corpus}], seq_len: 32}
batch: {tokens: 256}
steps: 60
"""


@pytest.fixture
def agent(environment: dict[str, str], corpus: Path) -> Agent:
    return Agent(environment)


@pytest.fixture
def hub() -> Iterator[Hub]:
    with serving() as hub:
        yield hub


def test_no_hub_that_a_spec_names_is_asked(agent: Agent, hub: Hub) -> None:
    spec = f"{_HUB_SPEC}env: {{HF_ENDPOINT: '{hub.endpoint}'}}\n"

    async def reading(client: Client) -> None:
        error = await error_of(client, "plan_run", spec=spec)
        assert error.startswith("POLICY_ENDPOINT: ")

    async def acting(client: Client) -> None:
        for tool in ("plan_run", "launch"):
            error = await error_of(client, tool, spec=spec)
            assert error.startswith("CONFIRMATION_REQUIRED: ") and hub.endpoint[7:] in error

    agent.session(reading, read_only=True)
    agent.session(acting)
    assert hub.asked == []

    async def configured(client: Client) -> None:
        assert (await error_of(client, "plan_run", spec=spec)).startswith("HUB_NOT_FOUND: ")

    agent.settings(f"agent: {{endpoints: ['{hub.endpoint}']}}")
    agent.session(configured)
    assert hub.asked


class _Elsewhere(BaseHTTPRequestHandler):
    """A hub that sends everybody to `target`."""

    target = ""

    def do_GET(self) -> None:
        self.send_response(302)
        self.send_header("Location", f"{self.target}{self.path}")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        return


def test_an_agents_inspection_sends_no_token(
    agent: Agent, hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub.datasets["owner/rows"] = tmp_path / "of the hub"
    hub.datasets["owner/rows"].mkdir()
    (hub.datasets["owner/rows"] / "train.jsonl").write_text('{"text": "a"}\n' * 9)
    hub.gated.add("owner/rows")
    monkeypatch.setenv("HF_ENDPOINT", hub.endpoint)
    monkeypatch.setenv("HF_TOKEN", hub.token)

    async def scenario(client: Client) -> None:
        error = await error_of(client, "plan_run", spec="data: hf://owner/rows")
        assert error.startswith("HUB_GATED: ") and "No token was sent" in error
        hub.gated.clear()
        answer = await client.call_tool("plan_run", {"spec": "data: hf://owner/rows"})
        assert answer.structured_content is not None
        (source,) = answer.structured_content["data"]["sources"]
        assert (source["format"], source["rows"]) == ("jsonl", 9)

    agent.session(scenario, read_only=True)


@pytest.mark.slow
def test_no_redirection_of_a_hub_leads_to_another_server(agent: Agent, hub: Hub) -> None:
    handler = type("Elsewhere", (_Elsewhere,), {"target": hub.endpoint})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        configured = f"http://127.0.0.1:{server.server_port}"
        agent.settings(f"agent: {{endpoints: ['{configured}']}}")

        async def scenario(client: Client) -> None:
            spec = f"{_HUB_SPEC}env: {{HF_ENDPOINT: '{configured}'}}\n"
            assert (await error_of(client, "plan_run", spec=spec)).startswith("POLICY_ENDPOINT: ")

        agent.session(scenario, read_only=True)
        server.shutdown()
    assert hub.asked == []


@pytest.mark.parametrize(
    "named",
    [
        "env: {WANDB_BASE_URL: 'https://attacker.example'}",
        "env: {HTTPS_PROXY: 'attacker.example:3128'}",
        "env: {WANDB_HTTPS_PROXY: 'attacker.example:3128'}",
        "env: {ANYTHING: 'https://huggingface.co.attacker.example/x'}",
    ],
)
def test_no_tracker_or_proxy_that_a_spec_names_is_used(agent: Agent, named: str) -> None:
    async def acting(client: Client) -> None:
        for tool in ("plan_run", "launch"):
            error = await error_of(client, tool, spec=f"{_HUB_SPEC}{named}\n")
            assert error.startswith("CONFIRMATION_REQUIRED: "), error

    async def reading(client: Client) -> None:
        error = await error_of(client, "plan_run", spec=f"{_HUB_SPEC}{named}\n")
        assert error.startswith("POLICY_ENDPOINT: "), error

    agent.session(acting)
    agent.session(reading, read_only=True)


def test_no_approval_opens_an_ambiguous_address(agent: Agent) -> None:
    spec = f"{_HUB_SPEC}env: {{WANDB_BASE_URL: 'https://attacker.example\\@wandb.ai'}}\n"

    async def scenario(client: Client) -> None:
        for tool in ("plan_run", "launch"):
            assert (await error_of(client, tool, spec=spec)).startswith("POLICY_ENDPOINT: ")

    agent.session(scenario, says="accept")
    assert agent.asked == []
