"""Callers of one home at the same time: users of servers over HTTP, commands, and the board."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

import anyio
from support.mcp.http_server import client_of

from trainmaster.board.reads import CurvesQuery, Reads
from trainmaster.cli import run
from trainmaster.sync.workspace import open_workspace

# What agents do all day, and what they do wrong; RUN is the run that all of them know.
_TOOLS: list[tuple[str, dict[str, object]]] = [
    ("overview", {}),
    ("list_runs", {}),
    ("get_run", {"run_id": "RUN"}),
    ("query_metrics", {"run_id": "RUN"}),
    ("tail_log", {"run_id": "RUN"}),
    ("diagnose", {"run_id": "RUN"}),
    ("list_checkpoints", {"run_id": "RUN"}),
    ("list_hosts", {}),
    ("wait_for_event", {"run_id": "RUN", "timeout_s": 0.2}),
    ("launch", {"spec": "SPEC", "idempotency_key": "once"}),
    ("stop", {"run_id": "no-such-run"}),
    ("resume", {"run_id": "RUN"}),
]


@dataclass
class Callers:
    """Each makes so many random calls. `spec`, `run`: what their calls name. `codes`: what they
    got, `ok` or an error's code."""

    environment: Mapping[str, str]
    spec: str
    run: str
    calls: int
    codes: Counter[str] = field(default_factory=Counter)

    async def user(self, url: str, token: str, chance: random.Random) -> None:
        """A client of a server, in either era."""
        known = {"SPEC": self.spec, "RUN": self.run}
        async with client_of(url, token, chance.choice(["legacy", "2026-07-28"])) as client:
            for _ in range(self.calls):
                tool, arguments = chance.choice(_TOOLS)
                given = {name: known.get(str(value), value) for name, value in arguments.items()}
                result = await client.call_tool(tool, given)
                text = result.content[0].text  # type: ignore[union-attr]
                self.codes[text.partition(":")[0] if result.is_error else "ok"] += 1

    async def command_line(self) -> None:
        """One who types, none of whose commands may fail."""
        for words in (["runs"], ["status", self.run], ["hosts"], ["log"], ["tick"]):
            assert await anyio.to_thread.run_sync(run, [*words, "--json"]) == 0, words

    async def board(self) -> None:
        """A board with a reader."""
        with open_workspace(self.environment) as workspace:
            reads = Reads(workspace)
            for _ in range(self.calls):
                assert [row.run_id for row in (await reads.board()).runs] == [self.run]
                await reads.run(self.run)
                await reads.curves(CurvesQuery([self.run]))
                await reads.machines()
                await anyio.sleep(0)
