"""Many clients, two servers, commands and the board on one home: nobody meets a lock, no call is
lost."""

from __future__ import annotations

import json
import os
import random
from collections import Counter
from pathlib import Path

import anyio
import pytest
from mcp import Client
from support.mcp.http_server import client_of, serving, settings, token_for
from support.mcp.mcp_client import answer_of

from trainmaster.board.reads import CurvesQuery, Reads
from trainmaster.cli import run
from trainmaster.sync.workspace import open_workspace
from trainmaster.words.paths import Home
from trainmaster.words.roles import ROLES

_CLIENTS = int(os.environ.get("TRAINMASTER_HTTP_CLIENTS", "8"))
_CALLS = int(os.environ.get("TRAINMASTER_HTTP_CALLS", "6"))
_SEED = int(os.environ.get("TRAINMASTER_HTTP_SEED", str(random.randrange(1 << 30))))
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
_EXPECTED = {"ok", "RUN_NOT_FOUND", "RUN_IS_RUNNING", "ROLE_TOO_LOW"}
_SPEC = """\
name: rehearsal
framework: nanogpt
model: {{n_layer: 1, n_head: 2, d_model: 32}}
data: {{sources: [{{path: "{corpus}"}}], seq_len: 32}}
batch: {{tokens: 256}}
steps: 100000
env: {{TRAINMASTER_STEP_S: "0.05"}}
host: debug
"""


@pytest.mark.slow
def test_clients_of_two_servers_commands_and_the_board_share_a_home(
    home: Path, corpus: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    print(f"TRAINMASTER_HTTP_SEED={_SEED}")
    environment = {"TRAINMASTER_HOME": str(home)}
    chance = random.Random(_SEED)
    settings(home, "server: {requests_per_minute: 1000000}\n")
    names = [f"user{number}" for number in range(_CLIENTS)]
    tokens = [token_for(environment, name, chance.choice(ROLES)) for name in names]
    owner = token_for(environment, "owner", "operate")
    known = {"SPEC": _SPEC.format(corpus=corpus)}
    codes: Counter[str] = Counter()

    async def calls(client: Client, own: random.Random) -> None:
        for _ in range(_CALLS):
            tool, arguments = own.choice(_TOOLS)
            given = {name: known.get(str(value), value) for name, value in arguments.items()}
            result = await client.call_tool(tool, given)
            text = result.content[0].text  # type: ignore[union-attr]
            codes[text.partition(":")[0] if result.is_error else "ok"] += 1

    async def user(url: str, number: int) -> None:
        own = random.Random(_SEED + number)
        era = own.choice(["legacy", "2026-07-28"])
        async with client_of(url, tokens[number], era) as client:
            await calls(client, own)

    async def command_line() -> None:
        for words in (["runs"], ["status", known["RUN"]], ["hosts"], ["log"], ["tick"]):
            assert await anyio.to_thread.run_sync(run, [*words, "--json"]) == 0, words

    async def board() -> None:
        with open_workspace(environment) as workspace:
            reads = Reads(workspace)
            for _ in range(_CALLS):
                assert [row.run_id for row in (await reads.board()).runs] == [known["RUN"]]
                await reads.run(known["RUN"])
                await reads.curves(CurvesQuery([known["RUN"]]))
                await reads.machines()
                await anyio.sleep(0)

    async def scenario() -> None:
        async with (
            serving(environment) as one,
            serving(environment) as other,
            client_of(one, owner) as client,
        ):
            launched = {"spec": known["SPEC"], "idempotency_key": "once"}
            known["RUN"] = (await answer_of(client, "launch", **launched))["run_id"]
            async with anyio.create_task_group() as tasks:
                for number in range(_CLIENTS):
                    tasks.start_soon(user, (one, other)[number % 2], number)
                tasks.start_soon(command_line)
                tasks.start_soon(board)
            assert len((await answer_of(client, "list_runs"))["runs"]) == 1
            await answer_of(client, "stop", run_id=known["RUN"])

    anyio.run(scenario)
    assert set(codes) <= _EXPECTED, codes
    assert codes.total() == _CLIENTS * _CALLS
    rows = [json.loads(line) for line in Home(home).action_log.read_text().splitlines()]
    logged = Counter(row["user"] for row in rows if row.get("user", "owner") != "owner")
    assert logged == dict.fromkeys(names, _CALLS)
