"""A session of an agent under evaluation: the tools of a server in this process, each call counted,
and what wakes the agent up between calls."""

from __future__ import annotations

import asyncio
import json
import os
import re
import sys
import threading
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from mcp import Client, StdioServerParameters
from mcp.client import ClientRequestContext
from mcp.types import ElicitRequestParams, ElicitResult, Tool
from support.evals.situations import Place
from support.mcp.tokens import tokens

from trainmaster.backends.debug.trainer import SimulatedTrainer
from trainmaster.errors.advice import Face, for_face, shown_by
from trainmaster.mcp import build_server
from trainmaster.runs.events.wait import wait_for_event

_WAKE_WITHIN_S = 40.0
# In place of the minutes that a host gives a trainer which doesn't answer.
_GRACE_S = 0.5


@dataclass
class Session:
    """`calls`: each with its arguments. `tokens`: of what went to the tools and came back.
    `asked`: the questions to the user. `wakes`: how often an event came without a call."""

    client: Client
    place: Place
    tools: list[Tool]
    instructions: str
    calls: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    tokens: int = 0
    wakes: int = 0
    asked: list[str] = field(default_factory=list)

    async def call(self, name: str, arguments: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
        """What a client shows its model, and the structured content; none where it is an error."""
        self.calls.append((name, dict(arguments)))
        result = await self.client.call_tool(name, dict(arguments))
        text = "\n".join(getattr(part, "text", "") for part in result.content)
        self.tokens += tokens(json.dumps(dict(arguments))) + tokens(text)
        return text, (result.structured_content or {}) if not result.is_error else {}

    async def wake(self, run: str) -> str | None:
        """The line by which a monitor reports the run's next end, with what comes next; None where
        it doesn't end in time."""
        self.wakes += 1
        impatience = asyncio.create_task(_end_what_does_not_answer())
        try:
            with self.place.workspace() as workspace:
                said = await wait_for_event(workspace, run, until=["end"], timeout_s=_WAKE_WITHIN_S)
                await workspace.disconnect()
        finally:
            impatience.cancel()
        if said.event == "timeout":
            return None
        with shown_by(Face(("trainmaster",), frozenset(tool.name for tool in self.tools))):
            line = f"{said.run_id} {said.event}. Next: {for_face(said.next_step or '')}"
        self.tokens += tokens(line)
        return line


def same(one: tuple[str, Mapping[str, Any]]) -> tuple[str, dict[str, Any]]:
    """A call as it is compared with others: a run's id is the same as its name."""
    name, arguments = one
    run = re.sub(r"-[a-z2-7]{6}$", "", str(arguments.get("run_id", "")))
    return name, {**arguments, "run_id": run}


@asynccontextmanager
async def opened(
    place: Place, says: str | None, *, over_stdio: bool = False
) -> AsyncIterator[Session]:
    """`says`: what the user answers to forms; None for a client that has none. `over_stdio`: the
    server is a process of its own."""
    asked: list[str] = []

    async def answer(_: ClientRequestContext, params: ElicitRequestParams) -> ElicitResult:
        asked.append(params.message)
        if says == "accept":
            return ElicitResult(action="accept", content={"agree": True})
        return ElicitResult(action="decline")

    shown: dict[str, Any] = {} if says is None else {"elicitation_callback": answer}
    server = _command(place) if over_stdio else build_server(place.environment)
    async with Client(server, mode="2026-07-28", **shown) as client:
        tools = (await client.list_tools()).tools
        yield Session(client, place, tools, client.instructions or "", asked=asked)


def _command(place: Place) -> StdioServerParameters:
    variables = {**os.environ, **place.environment}
    arguments = ["-m", "trainmaster", "mcp"]
    return StdioServerParameters(command=sys.executable, args=arguments, env=variables)


async def _end_what_does_not_answer() -> None:
    """As a host does once its grace is over: kill trainers that were asked to end and don't."""
    since: dict[str, float] = {}
    while True:
        for thread in threading.enumerate():
            if isinstance(thread, SimulatedTrainer) and thread.asked_to_end.is_set():
                began = since.setdefault(thread.name, time.monotonic())
                if time.monotonic() - began > _GRACE_S:
                    thread.killed.set()
        await asyncio.sleep(0.05)
