"""What only reads changes nothing, sends nothing and starts nothing, whatever is due.

Watched are a host's files and commands, Kaggle, a provider, receivers of alerts, processes that are
started, and what acting keeps in the home.
"""

from __future__ import annotations

import ast
import inspect
import os
import textwrap
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anyio
import pytest
from support.alerts.webhook_receiver import Receiver
from support.mcp.everything_due import HOST, EverythingDue, RecordedWorkspace
from support.mcp.mcp_client import connected
from support.mcp.recording_ports import WrittenError, refusing_processes
from support.providers.runpod_site import RunPodSite
from support.runs.running_run import run_async

import trainmaster
from trainer_runtime.core.files.durable import try_lock
from trainmaster.alerts import delivery, evaluate, send
from trainmaster.alerts.send import begin_sending
from trainmaster.board.reads import CurvesQuery, Reads
from trainmaster.calls.work_thread import in_thread
from trainmaster.cli.command_table import LISTED
from trainmaster.cli.doctor.checks import examine
from trainmaster.home.paths import Home
from trainmaster.keeper import tick
from trainmaster.keeper.service import status as keeper_status
from trainmaster.machines.check_host import check_host
from trainmaster.machines.host_registry import list_hosts
from trainmaster.machines.renting import instances
from trainmaster.machines.renting import maintain_rentals as maintain_instances
from trainmaster.machines.renting.costs import list_costs
from trainmaster.machines.renting.offers import OffersQuery, list_offers
from trainmaster.mcp.definition import Definition
from trainmaster.mcp.toolsets import TOOLSETS
from trainmaster.runs import diagnose as diagnosis
from trainmaster.runs import stop
from trainmaster.runs.action_log import list_actions
from trainmaster.runs.data.inspect_data import inspect_data
from trainmaster.runs.diagnosis.failure_report import report_of
from trainmaster.runs.events.wait import wait_for_event
from trainmaster.runs.events.watch import Watch
from trainmaster.runs.launch import launch
from trainmaster.runs.lists.list_alerts import list_alerts
from trainmaster.runs.lists.list_checkpoints import list_checkpoints
from trainmaster.runs.lists.list_runs import list_runs
from trainmaster.runs.log.logs import read_log
from trainmaster.runs.metrics import query_metrics
from trainmaster.runs.metrics.plot import sketch_runs
from trainmaster.runs.monitor.monitor import monitor
from trainmaster.runs.overview.overview import overview
from trainmaster.runs.planning.plan_run import plan_run
from trainmaster.runs.resume import resume
from trainmaster.runs.status import status
from trainmaster.runs.status.status_page import get_page
from trainmaster.runs.upkeep import advance, maintain, secret_delivery
from trainmaster.runs.upkeep.advance import advance as advance_run
from trainmaster.sync.workspace import Workspace
from trainmaster.transfers import transfer

if TYPE_CHECKING:
    import grimp

pytestmark = [pytest.mark.slow, pytest.mark.attack]

Call = Callable[[Workspace], Awaitable[object]]


@pytest.fixture
def due(
    home: Path, tmp_path: Path, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> Iterator[EverythingDue]:
    home.mkdir()
    monkeypatch.setenv("DUE_TOKEN", "a-value-of-it")
    with RunPodSite(has_sshd=False) as site:
        monkeypatch.setenv("RUNPOD_API_KEY", site.account_key)
        workspace = RecordedWorkspace(Home(home), tmp_path / HOST)
        try:
            yield EverythingDue(workspace, tmp_path, receiver, site)
        finally:
            workspace.close()


@contextmanager
def watched(due: EverythingDue) -> Iterator[None]:
    """Inside, nothing may change."""
    before = due.unchanged()
    with refusing_processes(due.workspace.written):
        yield
    assert due.workspace.written == []
    assert due.asked_of_others() == []
    after = due.unchanged()
    assert [name for name in after if after[name] != before[name]] == []


def tools_to_call(due: EverythingDue) -> dict[str, list[dict[str, Any]]]:
    """By read-only tool, the arguments of calls that go as far as it can go."""
    each = [{"run_id": run} for run in due.runs]
    return {
        "overview": [{}],
        "plan_run": [{"spec": due.spec}],
        "list_runs": [{}],
        "get_run": [{**one, "detail": True} for one in each],
        "tail_log": [{**one, "stream": name} for one in each for name in ("train", "supervisor")],
        "query_metrics": [{}, *({"run_id": [run]} for run in due.runs)],
        "wait_for_event": [{"timeout_s": 0.3}, *({**one, "timeout_s": 0.3} for one in each)],
        "diagnose": each,
        "list_checkpoints": [{"run_id": due.completed, "verify": True}, *each],
        "list_hosts": [{}, {"check": HOST}],
        "list_offers": [{"provider": "runpod"}],
        "costs": [{}],
        "plot_metrics": [{"run_id": [due.silent]}],
    }


def test_no_tool_of_a_read_only_server_changes_anything(due: EverythingDue) -> None:
    calls = tools_to_call(due)

    async def call_all() -> None:
        options = {"read_only": True, "opened": lambda _environment: nullcontext(due.workspace)}
        environment = {"TRAINMASTER_HOME": str(due.workspace.home.root)}
        async with connected(environment, **options) as client:
            tools = {tool.name for tool in (await client.list_tools()).tools}
            assert tools == set(calls)
            for name, arguments in calls.items():
                for one in arguments:
                    result = await client.call_tool(name, one)
                    assert not result.is_error, (name, one, result.content)

    with watched(due):
        anyio.run(call_all)


def services_to_call(due: EverythingDue) -> dict[str, list[Call]]:
    """By command of the command line that only reads, what it calls."""
    runs = due.runs
    return {
        "overview": [overview],
        "plan": [lambda w: plan_run(w, due.spec)],
        "data": [lambda w: inspect_data(w, due.spec)],
        "runs": [list_runs],
        "status": [
            *(lambda w, run=run: status.get_status(w, run, detail=True) for run in runs),
            *(lambda w, run=run: get_page(w, run) for run in runs),
        ],
        "logs": [lambda w, run=run: read_log(w, run) for run in runs],
        "metrics": [
            lambda w: query_metrics.query_metrics(w, runs),
            lambda w: query_metrics.query_metrics(w, ()),
        ],
        "plot": [lambda w: sketch_runs(w, [due.silent])],
        "diagnose": [lambda w, run=run: diagnosis.diagnose(w, run) for run in runs],
        "report": [reported],
        "checkpoints": [
            lambda w, run=run: list_checkpoints(w, run, verify=run == due.completed) for run in runs
        ],
        "hosts": [list_hosts, lambda w: check_host(w, HOST)],
        "offers": [lambda w: list_offers(w, OffersQuery(provider="runpod"))],
        "costs": [list_costs],
        "alerts": [list_alerts, *(lambda w, run=run: list_alerts(w, run) for run in runs)],
        "keeper": [lambda w: keeper_status(w, {"HOME": str(w.home.root)})],
        "doctor": [examine],
        "log": [list_actions],
        "monitor": [monitored],
        "watch": [lambda w: watched_rows(w, ()), lambda w: watched_rows(w, runs)],
        "board": [
            lambda w: Reads(w).board(),
            lambda w: Reads(w).machines(),
            lambda w: Reads(w).curves(CurvesQuery(runs[:4])),
            *(lambda w, run=run: Reads(w).run(run) for run in runs),
        ],
        # Of the command, what acts stands beside this: `maintaining`.
        "wait": [lambda w, run=run: wait_for_event(w, run, timeout_s=0.3) for run in runs],
    }


async def reported(_: Workspace) -> None:
    assert await in_thread(report_of, Path(__file__))


async def monitored(workspace: Workspace) -> None:
    """Two rounds of a monitor, which reports to nobody."""
    rounds = iter((True, True))

    async def report(_: object) -> None:
        return

    await monitor(workspace, report=report, is_heard=lambda: next(rounds, False))


async def watched_rows(workspace: Workspace, runs: Sequence[str]) -> None:
    watch = Watch(workspace, runs)
    assert watch.hosts
    assert watch.rows().runs


# Of these, parts may only read; as a whole they act.
ACTING_COMMANDS = {
    "sample",
    "average",
    "lr-test",
    *(
        "mcp-tokens",
        "launch",
        "rehearse",
        "render",
        "export",
        "attach",
        "adopt",
        "inspect",
        "stop",
        "resume",
        "fetch",
        "clean",
        "replay",
        "demo",
    ),
    *(
        "provision",
        "release",
        "approve",
        "trust",
        "tick",
        "tick-part",
        "mcp",
        "transfer",
        "provision-worker",
        "send-alerts",
        "install",
        "rebuild",  # ingests what is mirrored
        "read-log",  # for the call that awaits it
    ),
}


def test_no_command_that_reads_changes_anything(due: EverythingDue) -> None:
    calls = services_to_call(due)
    listed = {one.word for one in LISTED}
    assert set(calls) | ACTING_COMMANDS == listed and not set(calls) & ACTING_COMMANDS

    async def call_all() -> None:
        for services in calls.values():
            for service in services:
                await service(due.workspace)

    with watched(due):
        run_async(call_all)


def test_the_process_that_acts_is_seen_to(due: EverythingDue) -> None:
    """What was not done above was due, and is seen where it is done."""
    workspace = due.workspace

    async def act() -> None:
        for run in workspace.control.runs():
            with suppress(WrittenError):
                await advance_run(workspace, run.run_id)
        with suppress(WrittenError):
            begin_sending(workspace)
        under_way = try_lock(workspace.home.transfer_lock(due.completed))
        assert under_way is not None
        assert await advance_run(workspace, due.completed) == ["forgot its secrets"]
        os.close(under_way)

    before = due.unchanged()
    with refusing_processes(workspace.written):
        run_async(act)
    written = "\n".join(workspace.written)
    for words in (
        f"{HOST}: put_folder {workspace.host._root}/runs/{due.planned}",
        f"runs/{due.planned}/.secrets.json",
        f"{HOST}: supervisor {workspace.host._root}/runs/{due.silent}",
        f"runs/{due.silent}/.alerts.json",
        f"runs/{due.stopping}/desired.json",
        "kaggle: push",
        f"-m trainmaster transfer {due.uploading}",
        f"-m trainmaster transfer {due.completed}",
        "-m trainmaster send-alerts",
    ):
        assert words in written
    after = due.unchanged()
    assert {name for name in before if before[name] != after[name]} >= {HOST, "secrets", "control"}
    assert workspace.control.alerts.messages(due.silent) == []
    maintain.fire_alerts(workspace, due.silent)
    assert workspace.control.alerts.messages(due.silent) != []


@pytest.fixture(scope="module")
def imports() -> grimp.ImportGraph:
    import grimp  # here, since each of the tests' workers imports this file: 0.3 s

    return grimp.build_graph(trainmaster.__name__)


# Where runs and hosts are acted on, and messages sent.
ACTS = {
    module.__name__
    for module in (
        *(advance, transfer, secret_delivery, delivery, evaluate, send, maintain),
        *(launch, resume, stop, tick, instances, maintain_instances),
    )
}
READ_ONLY_TOOLS = [
    definition
    for toolset in TOOLSETS.values()
    for definition in toolset
    if definition.hints.read_only_hint
]


@pytest.mark.parametrize("tool", READ_ONLY_TOOLS, ids=lambda tool: tool.function.__name__)
def test_a_read_only_tool_imports_nothing_that_acts(
    imports: grimp.ImportGraph, tool: Definition
) -> None:
    assert acting_imports(imports, tool.function) == {}


READING_COMMANDS = (
    "overview.overview",
    "plan.plan",
    "status.runs",
    "status.status",
    "status._page",
    "status.metrics",
    "logs.logs",
    "plot.plot",
    "diagnose.diagnose",
    "report.report",
    "lifecycle.checkpoints",
    "hosts.list_hosts",
    "hosts.check",
    "offers.offers",
    "rent.costs",
    "alerts.list_all",
    "alerts.list_alerts",
    "keeper.status",
    "maintenance.doctor",
    "action_log.log",
)


@pytest.mark.parametrize("command", READING_COMMANDS)
def test_a_command_that_reads_imports_nothing_that_acts(
    imports: grimp.ImportGraph, command: str
) -> None:
    module, _, name = command.partition(".")
    function = getattr(import_module(f"trainmaster.cli.commands.{module}"), name)
    assert acting_imports(imports, function) == {}


def acting_imports(graph: grimp.ImportGraph, function: Callable[..., object]) -> dict[str, Any]:
    """What acts among all that the services import which a function imports, and by which way."""
    modules = [name for name in imported(function) if name in graph.modules]
    services = [
        name
        for name in modules
        if name.split(".")[1:2] not in (["cli"], ["mcp"]) or ".doctor." in name
    ]
    assert services
    return {
        f"{service} -> {module}": graph.find_shortest_chain(service, module)
        for service in services
        for module in ACTS
        if module in (service, *graph.find_upstream_modules(service))
    }


def imported(function: Callable[..., object]) -> Iterator[str]:
    """The modules that a function's body imports."""
    for node in ast.walk(ast.parse(textwrap.dedent(inspect.getsource(function)))):
        if isinstance(node, ast.ImportFrom):
            yield str(node.module)
            yield from (f"{node.module}.{name.name}" for name in node.names)
