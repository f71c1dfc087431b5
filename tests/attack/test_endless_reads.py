"""Files without an end, and many reads at once: each read ends with its call, other users' calls
are answered meanwhile, and a server ends whatever it reads."""

from __future__ import annotations

import os
import random
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import anyio
import pytest
from mcp import Client
from mcp.shared.exceptions import MCPError
from support.attack.cases import attack_count, attack_random
from support.attack.endless_files import ENDLESS
from support.attack.served import served_process
from support.board.planted_board import plant_board
from support.host.scripted_processes import CONFIG
from support.mcp.http_server import client_of, token_for
from support.mcp.mcp_client import answer_of, connected_over_stdio
from support.runs.running_run import run_async
from support.session.child_processes import descendants, processor_s, until_gone
from support.session.tiers import at_length

from trainer_runtime.core.protocol.desired import Desired
from trainer_runtime.core.protocol.states import DesiredState
from trainmaster.calls.shares import OF_CALLER
from trainmaster.calls.work import Work, working
from trainmaster.mcp import build_server
from trainmaster.metrics.log_file import read_chunks
from trainmaster.runs.log.log_search import LogSearch
from trainmaster.runs.log.logs import read_log
from trainmaster.store.run import Run
from trainmaster.sync.workspace import Workspace, open_workspace

pytestmark = [pytest.mark.attack, pytest.mark.slow]

_BOUND_S = 120.0
_END_S = 5.0
_READS: Sequence[tuple[str, dict[str, object]]] = (
    ("tail_log", {}),
    ("tail_log", {"grep": "l[o]ss 0"}),
    ("tail_log", {"grep": "(x+x+)+y"}),
    ("tail_log", {"grep": "CUDA|NCCL", "cursor": "l1.file.0.0"}),
    ("tail_log", {"cursor": "l1.file.0.0", "limit": 1000}),
    ("tail_log", {"cursor": "e1.file.0.999999999999999"}),
    ("query_metrics", {}),
    ("query_metrics", {"key": ["loss/ranks_max"], "since": "2h"}),
    ("plot_metrics", {}),
    ("diagnose", {}),
)


def _arguments(tool: str, path: Path, **more: object) -> dict[str, object]:
    is_of_many = tool in ("query_metrics", "plot_metrics")
    return {"run_id": [str(path)] if is_of_many else str(path), **more}


def _reading_threads() -> list[threading.Thread]:
    return [one for one in threading.enumerate() if one.name == "trainmaster-read"]


async def _try(client: Client, tool: str, arguments: dict[str, object]) -> None:
    """Call a tool whose server may end meanwhile."""
    with suppress(MCPError, anyio.ClosedResourceError, anyio.BrokenResourceError):
        await client.call_tool(tool, arguments)


def _until_idle(started_here: Callable[[], list[int]]) -> None:
    """Wait until nothing reads in this process or below it."""
    deadline = time.monotonic() + _END_S
    while left := [*_reading_threads(), *started_here()]:
        assert time.monotonic() < deadline, f"still reading: {left}"
        time.sleep(0.01)


def test_every_read_of_every_file_ends_with_its_call(
    home: Path, tmp_path: Path, started_here: Callable[[], list[int]]
) -> None:
    longest_s = 3.0
    chance = attack_random("endless reads")
    server = build_server({"TRAINMASTER_HOME": str(home)})
    server.longest_call_s = longest_s  # type: ignore[attr-defined]

    async def scenario() -> None:
        async with Client(server) as client:
            await answer_of(client, "overview")
            for number in range(attack_count(10)):
                shape = chance.choice(sorted(ENDLESS))
                tool, more = chance.choice(_READS)
                path = tmp_path / f"{number}.log"
                ENDLESS[shape](path, chance)
                print(shape, tool, more)
                began = time.monotonic()
                result = await client.call_tool(tool, _arguments(tool, path, **more))
                assert time.monotonic() - began < longest_s + 2.0
                text = str(result.content[0].text)  # type: ignore[union-attr]
                if shape != "link_to_itself":  # its error is another test's
                    assert not text.startswith("INTERNAL"), text
                _until_idle(started_here)
                if path.is_file() and not path.is_symlink():
                    path.unlink()

    anyio.run(scenario)


@pytest.mark.parametrize("shape", ["sparse", "text_before_a_hole", "one_line", "one_bar"])
@pytest.mark.parametrize("cursor", [None, "l1.file.0.0"])
def test_a_tail_is_bounded_by_bytes(
    workspace: Workspace, tmp_path: Path, shape: str, cursor: str | None
) -> None:
    log = tmp_path / "endless.log"
    ENDLESS[shape](log, attack_random(shape))
    with working(Work(most_bytes=128 << 20)):
        answer = run_async(lambda: read_log(workspace, str(log), cursor=cursor, limit=20))
    assert len(answer.lines) <= 20


def test_a_growing_log_is_read_to_the_end_that_it_had(tmp_path: Path) -> None:
    log = tmp_path / "growing.log"
    log.write_bytes(b"begun\n" * 20)
    with log.open("rb") as file, log.open("ab", buffering=0) as writer:
        lines = LogSearch("nothing.like this").from_(file, 0, with_torn_end=True)
        for _ in islice(lines, 1_000):
            writer.write(b"begun\n" * 100)
    assert log.stat().st_size == 6 * (20 + 21 * 100)  # each line, and the place behind them
    with log.open("ab", buffering=0) as writer:
        before = log.stat().st_size
        sizes = []
        for chunk in islice(read_chunks(log), 1_000):
            sizes.append(len(chunk))
            writer.write(chunk)
    assert sizes == [before]


def test_a_cancelled_call_leaves_nothing_that_reads(
    home: Path, tmp_path: Path, started_here: Callable[[], list[int]]
) -> None:
    log = tmp_path / "endless.log"
    ENDLESS["sparse"](log, random.Random(0))

    async def scenario() -> None:
        async with Client(build_server({"TRAINMASTER_HOME": str(home)})) as client:
            for tool, more in (("query_metrics", {}), ("tail_log", {"grep": "l[o]ss"})):
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(client.call_tool, tool, _arguments(tool, log, **more))
                    with anyio.fail_after(_BOUND_S):
                        while not (_reading_threads() or started_here()):
                            await anyio.sleep(0.01)
                    tasks.cancel_scope.cancel()
                await anyio.to_thread.run_sync(_until_idle, started_here)

    anyio.run(scenario)


@dataclass(frozen=True, slots=True)
class _Served:
    process: subprocess.Popen[str]
    url: str


@pytest.fixture
def busy_log(tmp_path: Path) -> Path:
    """A log of many lines, each of which is matched by itself."""
    path = tmp_path / "busy.log"
    path.write_bytes(b"step 1: loss 0.5 xxxxxxxxxxxxxxxxx\n" * 3_000_000)
    return path


@pytest.fixture
def served(home: Path) -> Iterator[_Served]:
    """A server over HTTP of a home with runs, in a process of its own."""
    with open_workspace({"TRAINMASTER_HOME": str(home)}) as workspace:
        for number in range(40):
            run = Run(f"small-{number:06d}", "small", 1.0, "debug", "", CONFIG, {}, {})
            desired = Desired(DesiredState.RUNNING, 1)
            workspace.control.add_run(run, desired, "in_process", "/folder", None)
            workspace.control.close_run(run.run_id, answered=1)
    token_for({"TRAINMASTER_HOME": str(home)}, "owner", "read")  # else it doesn't begin
    command = [sys.executable, "-m", "trainmaster", "mcp", "--http", "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield _Served(process, process.stdout.readline().strip())
        finally:
            process.kill()


def _many_reads(log: Path, endless: Path) -> list[tuple[str, dict[str, object]]]:
    return [
        ("query_metrics", _arguments("query_metrics", endless)),
        *[("tail_log", _arguments("tail_log", log, grep="l[o]ss 9"))] * 8,
        *[("tail_log", _arguments("tail_log", endless, grep="l[o]ss 9"))] * 4,
        *[("query_metrics", _arguments("query_metrics", endless))] * 8,
        *[("plot_metrics", _arguments("plot_metrics", log))] * 8,
        *[("diagnose", _arguments("diagnose", log))] * 8,
    ]


@pytest.mark.long
def test_reads_of_one_user_hold_up_no_other(
    home: Path, served: _Served, tmp_path: Path, busy_log: Path
) -> None:
    endless = tmp_path / "endless.log"
    ENDLESS["sparse"](endless, random.Random(0))
    environment = {"TRAINMASTER_HOME": str(home)}
    ann, bob = (token_for(environment, name, "read") for name in ("ann", "bob"))
    answered = 0

    async def scenario() -> None:
        nonlocal answered
        async with client_of(served.url, ann) as hers, client_of(served.url, bob) as his:
            await answer_of(his, "overview")
            async with anyio.create_task_group() as tasks:
                for tool, arguments in _many_reads(busy_log, endless):
                    tasks.start_soon(_try, hers, tool, arguments)
                with anyio.fail_after(_BOUND_S):
                    while not descendants(served.process.pid):
                        await anyio.sleep(0.01)
                until = time.monotonic() + 2.0
                while time.monotonic() < until:
                    await answer_of(his, "overview")
                    await answer_of(his, "tail_log", run_id=str(busy_log))
                    answered += 2
                tasks.cancel_scope.cancel()
            await anyio.to_thread.run_sync(until_gone, descendants(served.process.pid), _END_S)

    anyio.run(scenario)
    assert answered
    _until_it_rests(served.process.pid)


@pytest.mark.long
def test_a_user_who_fills_a_share_of_reading_leaves_others_theirs(
    home: Path, served: _Served, tmp_path: Path
) -> None:
    """His read is answered while her first two still read, and the rest of hers wait."""
    endless, short = tmp_path / "endless.log", tmp_path / "short.log"
    ENDLESS["sparse"](endless, random.Random(0))
    short.write_text("step 1: loss 0.5\n")
    environment, pid = {"TRAINMASTER_HOME": str(home)}, served.process.pid
    ann, bob = (token_for(environment, name, "read") for name in ("ann", "bob"))
    arguments = _arguments("tail_log", endless, grep="l[o]ss 9")

    async def scenario() -> None:
        async with (
            client_of(served.url, ann) as hers,
            client_of(served.url, bob) as his,
            anyio.create_task_group() as tasks,
        ):
            for _ in range(2 * OF_CALLER):
                tasks.start_soon(_try, hers, "tail_log", arguments)
            with anyio.fail_after(_BOUND_S):
                while len(reading := descendants(pid)) < OF_CALLER:
                    await anyio.sleep(0.01)
                answer = await answer_of(his, "tail_log", run_id=str(short))
            assert answer["lines"]
            assert descendants(pid) == reading
            tasks.cancel_scope.cancel()

    anyio.run(scenario)


@pytest.mark.parametrize(
    ("tool", "more"),
    [
        ("tail_log", {"grep": "l[o]ss 9"}),
        *at_length(("query_metrics", {}), ("diagnose", {})),
    ],
)
def test_what_reads_for_a_call_gives_way_to_other_calls(
    served: _Served, home: Path, tmp_path: Path, tool: str, more: dict[str, object]
) -> None:
    """By its niceness, which on Linux counts within a session alone."""
    endless = tmp_path / "endless.log"
    ENDLESS["sparse"](endless, random.Random(0))
    ann, pid = token_for({"TRAINMASTER_HOME": str(home)}, "ann", "read"), served.process.pid

    async def scenario() -> None:
        async with client_of(served.url, ann) as client, anyio.create_task_group() as tasks:
            tasks.start_soon(_try, client, tool, _arguments(tool, endless, **more))
            with anyio.fail_after(_BOUND_S):
                while not (reading := descendants(pid)):
                    await anyio.sleep(0.01)
                while os.getpriority(os.PRIO_PROCESS, reading[0]) <= os.nice(0):
                    await anyio.sleep(0.01)
            assert os.getsid(reading[0]) == os.getsid(pid)
            tasks.cancel_scope.cancel()

    anyio.run(scenario)


def _until_it_rests(pid: int) -> None:
    """Wait until a process takes less than a tenth of a core."""
    deadline = time.monotonic() + _END_S
    while True:
        before = processor_s(pid)
        time.sleep(0.5)
        if processor_s(pid) - before < 0.05:
            return
        assert time.monotonic() < deadline, "it still works on what nobody waits for"


@pytest.mark.parametrize("number", [signal.SIGTERM, *at_length(signal.SIGKILL)])
def test_a_server_over_http_ends_whatever_it_reads(
    home: Path, served: _Served, tmp_path: Path, busy_log: Path, number: signal.Signals
) -> None:
    endless = tmp_path / "endless.log"
    ENDLESS["sparse"](endless, random.Random(0))
    ann = token_for({"TRAINMASTER_HOME": str(home)}, "ann", "read")
    process = served.process

    async def scenario() -> None:
        async with client_of(served.url, ann) as client, anyio.create_task_group() as tasks:
            for tool, arguments in _many_reads(busy_log, endless):
                tasks.start_soon(client.call_tool, tool, arguments)

    def call() -> None:
        with suppress(Exception):  # the server ends meanwhile
            anyio.run(scenario)

    caller = threading.Thread(target=call)
    caller.start()
    deadline = time.monotonic() + _BOUND_S
    while not (started := descendants(process.pid)):
        assert time.monotonic() < deadline
    began = time.monotonic()
    process.send_signal(number)
    process.wait(_BOUND_S)
    ended_s = time.monotonic() - began
    until_gone(started, 3 * _END_S)  # each by the loss of its parent
    caller.join(_BOUND_S)
    print(f"ended {ended_s:.2f} s after {number.name}")
    assert ended_s <= _END_S
    assert number is signal.SIGKILL or process.returncode == 0


@pytest.mark.long
def test_a_server_on_stdio_ends_with_its_client_whatever_it_reads(
    home: Path, tmp_path: Path, busy_log: Path, started_here: Callable[[], list[int]]
) -> None:
    endless = tmp_path / "endless.log"
    ENDLESS["sparse"](endless, random.Random(0))
    environment, ended_s = {"TRAINMASTER_HOME": str(home)}, list[float]()

    async def scenario() -> None:
        async with connected_over_stdio(environment, "2026-07-28") as client:
            await answer_of(client, "overview")
            (server,) = started_here()
            async with anyio.create_task_group() as tasks:
                for tool, arguments in _many_reads(busy_log, endless):
                    tasks.start_soon(_try, client, tool, arguments)
                with anyio.fail_after(_BOUND_S):
                    while not (started := descendants(server)):
                        await anyio.sleep(0.01)
                os.kill(server, signal.SIGTERM)
                began = time.monotonic()
                await anyio.to_thread.run_sync(until_gone, [server, *started], _END_S)
                ended_s.append(time.monotonic() - began)
                tasks.cancel_scope.cancel()

    anyio.run(scenario)
    print(f"ended after {ended_s[0]:.2f} s")


@pytest.mark.long
def test_a_board_ends_while_pages_read_an_endless_log(home: Path, tmp_path: Path) -> None:
    environment = {"TRAINMASTER_HOME": str(home)}
    with open_workspace(environment) as workspace:
        run = plant_board(workspace)[0]
        log = workspace.mirror.of(run.run_id, 1).path("attempts/2/train.log")
        ENDLESS["one_bar"](log, random.Random(0))
        os.truncate(log, 2 << 40)
    with served_process(["board"], environment, tmp_path) as board, ExitStack() as pages:
        _, _, token = board.url.partition("/#token=")
        asked = f"GET /api/run?run={run.run_id} HTTP/1.1\r\nHost: 127.0.0.1\r\n"
        for _ in range(8):
            page = pages.enter_context(socket.create_connection(("127.0.0.1", board.port)))
            page.sendall(f"{asked}Authorization: Bearer {token}\r\n\r\n".encode())
        assert board.ended_s() <= _END_S
        assert board.process.returncode == 0
        assert "Traceback" not in board.log.read_text()
