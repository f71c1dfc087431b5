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
from support.mcp.http_callers import Callers
from support.mcp.http_server import client_of, serving, settings, token_for
from support.mcp.mcp_client import answer_of

from trainmaster.home.paths import Home
from trainmaster.settings.roles import ROLES

_CLIENTS = int(os.environ.get("TRAINMASTER_HTTP_CLIENTS", "8"))
_CALLS = int(os.environ.get("TRAINMASTER_HTTP_CALLS", "6"))
_SEED = int(os.environ.get("TRAINMASTER_HTTP_SEED", str(random.randrange(1 << 30))))
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
    codes: Counter[str] = Counter()

    async def scenario() -> None:
        async with (
            serving(environment) as one,
            serving(environment) as other,
            client_of(one, owner) as client,
        ):
            spec = _SPEC.format(corpus=corpus)
            launched = await answer_of(client, "launch", spec=spec, idempotency_key="once")
            callers = Callers(environment, spec, launched["run_id"], _CALLS, codes)
            async with anyio.create_task_group() as tasks:
                for number, token in enumerate(tokens):
                    own = random.Random(_SEED + number)
                    tasks.start_soon(callers.user, (one, other)[number % 2], token, own)
                tasks.start_soon(callers.command_line)
                tasks.start_soon(callers.board)
            assert len((await answer_of(client, "list_runs"))["runs"]) == 1
            await answer_of(client, "stop", run_id=callers.run)

    anyio.run(scenario)
    assert set(codes) <= _EXPECTED, codes
    assert codes.total() == _CLIENTS * _CALLS
    rows = [json.loads(line) for line in Home(home).action_log.read_text().splitlines()]
    logged = Counter(row["user"] for row in rows if row.get("user", "owner") != "owner")
    assert logged == dict.fromkeys(names, _CALLS)
