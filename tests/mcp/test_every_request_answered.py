"""Whatever comes on stdin, and however long a line of a log is: an answer, and the next one too."""

from __future__ import annotations

import json
import os
import selectors
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio
import pytest
from support.mcp.mcp_client import answer_of, connected, error_of
from support.session.tiers import at_length

from trainmaster.runs.log.log_lines import end_of_lines
from trainmaster.runs.log.log_search import LogSearch

_LONGEST_ANSWER_S = 300.0
_DEEP = b"[" * 500 + b"]" * 500
_HELLO = {
    "protocolVersion": "2025-06-18",
    "capabilities": {},
    "clientInfo": {"name": "raw", "version": "1"},
}


class RawServer:
    """The command `trainmaster mcp`, which is sent bytes."""

    def __init__(self, home: Path) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", "from trainmaster.cli import main; main()", "mcp"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={**os.environ, "TRAINMASTER_HOME": str(home)},
        )

    def ask(self, line: bytes) -> dict[str, Any]:
        """What it answers to one line."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(line + b"\n")
        self._process.stdin.flush()
        with selectors.DefaultSelector() as waiting:
            waiting.register(self._process.stdout, selectors.EVENT_READ)
            assert waiting.select(_LONGEST_ANSWER_S), f"no answer to {line[:200]!r}"
        answer = self._process.stdout.readline()
        assert len(answer) < 20_000
        found: dict[str, Any] = json.loads(answer)
        return found

    def begin(self) -> None:
        hello = {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": _HELLO}
        assert self.ask(json.dumps(hello).encode())["id"] == 0

    def end(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        assert self._process.wait(_LONGEST_ANSWER_S) == 0


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RawServer]:
    server = RawServer(tmp_path / "home")
    yield server
    server.end()


def _call(id: int, arguments: bytes) -> bytes:
    head = b'{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":' % id
    return head + b'{"name":"list_runs","arguments":' + arguments + b"}}"


@pytest.mark.slow
def test_every_line_on_stdin_is_answered_and_so_is_the_next_call(server: RawServer) -> None:
    junk = (b"junk \xff\xfe", b"[]", b"{", b"\x00", b"[" * 100_000, b'"' + b"x" * 1_000_000)
    for line in junk:
        answer = server.ask(line)
        assert answer["id"] is None
        assert answer["error"]["message"].startswith("BAD_ARGUMENT: ")
    server.begin()
    arguments = (
        b'{"state":' + _DEEP + b"}",
        b'{"state":"\\ud800"}',
        b'{"state":"a\\u0000b"}',
        b'{"state":"' + b"\xff" * 300 + b'"}',
        b'{"state":"' + b"a" * 10_000_000 + b'"}',
        b'{"limit":1e308}',
        b'{"limit":1e400}',
        b'{"limit":NaN}',
        b'{"limit":' + b"9" * 5000 + b"}",
        b'{"limit":-0}',
        b'{"limit":[{"a":1}]}',
        b'{"a\\u0000":1}',
        b'{"nope":1}',
    )
    for id, given in enumerate(arguments, 1):
        answer = server.ask(_call(id, given))
        assert answer["id"] == id
        assert answer["result"]["isError"]
        text = answer["result"]["content"][0]["text"]
        assert text.startswith("BAD_ARGUMENT: ")
        assert text.endswith("retryable=no")
    whole = server.ask(_call(99, b"{}"))
    assert whole["result"]["structuredContent"] == {"runs": []}


@pytest.mark.slow
def test_malformed_parameters_are_answered_with_an_error_and_never_repeated(
    server: RawServer,
) -> None:
    server.begin()
    name = b'"name":"list_runs"'
    malformed = (
        *(b"[]", b"1", b'"list_runs"', b"{}", b'{"name":1}', b"{" + name + b',"arguments":[]}'),
        b"{" + name + b',"arguments":"' + b"x" * 1_000_000 + b'"}',
        b'{"name":"' + b"x" * 1_000_000 + b'"}',
        b"{" + name + b',"_meta":1}',
        b"{" + name + b',"arguments":' + _DEEP + b"}",
    )
    for id, given in enumerate(malformed, 1):
        line = b'{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":%b}' % (id, given)
        answer = server.ask(line)
        assert answer["id"] == id, (given[:80], answer)
        refused = answer.get("error") or answer["result"]["isError"]
        assert refused, (given[:80], answer)
        assert "xxxxxxxxxx" * 30 not in json.dumps(answer)
    assert server.ask(_call(99, b"{}"))["result"]["structuredContent"] == {"runs": []}


@pytest.mark.parametrize("era", ["legacy", "2026-07-28"])
def test_arguments_that_nothing_can_hold_are_refused_by_name(
    environment: dict[str, str], era: str
) -> None:
    unusable = ("\ud800", "a\0b", "x" * 1_000_001, [["deep"]], float("nan"), 10**400)

    async def scenario() -> None:
        async with connected(environment, era) as client:
            for value in unusable:
                refused = await error_of(client, "get_run", run_id=value)
                assert refused.startswith("BAD_ARGUMENT: ")
                assert "run_id" in refused
                assert len(refused) < 1000
            for path in ("/" + "x" * 300, "x" * 300, "./" + "y/" * 3000):
                refused = await error_of(client, "tail_log", run_id=path)
                assert refused.startswith(("RUN_NOT_FOUND: ", "POLICY_FILE: ", "BAD_ARG"))
            assert await answer_of(client, "list_runs") == {"runs": []}

    anyio.run(scenario)


_READERS = [("tail_log", {"grep": "loss"}), ("diagnose", {})]


@pytest.mark.parametrize(
    ("unit", "tool", "given"),
    [
        (b'{"a":[1,2,{"step":1,', "diagnose", {}),
        *at_length(
            (b"loss 2.5 step 1 ", "tail_log", {"grep": "loss"}),
            (b"loss 2.5 step 1 ", "diagnose", {}),
            (b'{"a":[1,2,{"step":1,', "tail_log", {"grep": "loss"}),
            *((b"x", tool, given) for tool, given in _READERS),
            *((b"\x1b]8;;", tool, given) for tool, given in _READERS),
        ),
    ],
)
def test_a_huge_line_is_read_while_other_calls_are_answered(
    environment: dict[str, str], tmp_path: Path, unit: bytes, tool: str, given: dict[str, str]
) -> None:
    size = int(os.environ.get("TRAINMASTER_LONG_LINE_MB", "16")) << 20
    log = tmp_path / "long.log"
    log.write_bytes(unit * (size // len(unit)) + b"\nstep 1: loss 2.5\n")
    waited: list[float] = []

    async def scenario() -> None:
        async with connected(environment) as client:
            await answer_of(client, "list_runs")
            over = anyio.Event()

            async def read() -> None:
                answer = await answer_of(client, tool, run_id=str(log), **given)
                assert len(json.dumps(answer)) < 10_000
                over.set()

            async with anyio.create_task_group() as tasks:
                tasks.start_soon(read)
                while not over.is_set():
                    began = time.monotonic()
                    await answer_of(client, "list_runs")
                    waited.append(time.monotonic() - began)

    anyio.run(scenario)
    print(f"{unit!r}: {len(waited)} calls meanwhile, the slowest {max(waited):.3f} s")


@pytest.mark.parametrize("torn", [True, False])
def test_lines_are_the_same_forwards_backwards_and_by_splitting(tmp_path: Path, torn: bool) -> None:
    sizes = (0, 1, 5, 262_143, 262_144, 262_145, 600_000, 0, 0, 70_000, 3)
    lines = [bytes([97 + at % 26]) * size for at, size in enumerate(sizes)]
    log = tmp_path / "some.log"
    log.write_bytes(b"\n".join(lines) + (b"" if torn else b"\n"))
    with log.open("rb") as file:
        whole_end = end_of_lines(file)
        end = log.stat().st_size if torn else whole_end
        onward = list(LogSearch().from_(file, 0, with_torn_end=True))
        backwards = list(LogSearch().before(file, end))
    assert whole_end == (log.stat().st_size - 3 if torn else log.stat().st_size)
    forwards = [line for line, _ in onward if line is not None]
    assert [line[:1].encode() for line in forwards] == [line[:1] for line in lines]
    assert [line for line, _ in backwards if line is not None] == forwards[::-1]
    behind = [at for line, at in onward if line is not None]
    begins = [at for line, at in backwards if line is not None]
    assert begins[::-1] == [0, *behind[:-1]]


@pytest.mark.attack
def test_of_an_endless_progress_bar_the_last_state_is_shown(
    environment: dict[str, str], tmp_path: Path
) -> None:
    log = tmp_path / "bar.log"
    log.write_bytes(b"\r 50%|##  | 1/2" * 300_000 + b"\r100%|####| 2/2\r\n")

    async def scenario() -> None:
        async with connected(environment) as client:
            answer = await answer_of(client, "tail_log", run_id=str(log))
            assert answer["lines"] == ["100%|####| 2/2"]

    anyio.run(scenario)
