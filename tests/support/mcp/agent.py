"""An agent who works through an MCP server, and a user who answers its forms."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import anyio
from mcp import Client
from mcp.client import ClientRequestContext
from mcp.types import ElicitRequestParams, ElicitResult

from trainmaster.home.paths import Home
from trainmaster.mcp import build_server

Scenario = Callable[[Client], Awaitable[None]]


class Agent:
    """An agent's sessions in one home. `asked`: the questions that its user was asked."""

    def __init__(self, environment: dict[str, str]) -> None:
        self.environment = environment
        self.home = Home(Path(environment["TRAINMASTER_HOME"]))
        self.home.root.mkdir(exist_ok=True)
        self.asked: list[str] = []

    def settings(self, text: str) -> None:
        self.home.settings.write_text(f"{text}\n")

    def session(
        self, scenario: Scenario, era: str = "2026-07-28", says: str | None = None, **options: Any
    ) -> None:
        """`says`: what the user answers to forms, `accept` or `decline`; None: no forms."""

        async def answer(_: ClientRequestContext, params: ElicitRequestParams) -> ElicitResult:
            self.asked.append(params.message)
            if says == "accept":
                return ElicitResult(action="accept", content={"agree": True})
            return ElicitResult(action="decline")

        shown: dict[str, Any] = {} if says is None else {"elicitation_callback": answer}

        async def hold() -> None:
            server = build_server(self.environment, **options)
            async with Client(server, mode=era, **shown) as client:
                await scenario(client)

        anyio.run(hold)
