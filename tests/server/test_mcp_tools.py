from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp import Client, StdioServerParameters
from mcp.server import MCPServer
from mcp.types import Tool

from trainmaster.answers import ReplayAnswer
from trainmaster.cli import run
from trainmaster.errors import UsageError
from trainmaster.mcp import build_server
from trainmaster.mcp.answering import AnsweringServer
from trainmaster.mcp.definition import READS, Definition, OpenWorkspace, build_tool
from trainmaster.wait import EVENTS

_ROOT = Path(__file__).resolve().parents[2]
_GOLDEN = _ROOT / "tests" / "golden" / "mcp_tools.json"
_UPDATE = os.environ.get("UPDATE_GOLDEN") == "1"
_ERAS = pytest.mark.parametrize("era", ["legacy", "2026-07-28"])
_COMMON_WORDS = "run_id spec host set cursor until timeout_s idempotency_key"
_OWN_WORDS = (
    "state label limit detail stream grep width key points verify start check folder pattern"
)
_HOST_WORDS = "name address jump root cache"
_METRIC_WORDS = "from_step to_step at since ema rate x"
# A token is taken for three characters of JSON, which is on the safe side.
_CHARACTERS_PER_TOKEN = 3
_SPEC = """\
name: rehearsal
framework: nanogpt
model: {{n_layer: 1, n_head: 2, d_model: 32}}
data: {{sources: [{{path: "{corpus}"}}], seq_len: 32}}
batch: {{tokens: 256}}
steps: {steps}
eval: {{every_steps: 20, batches: 2}}
checkpoint: {{every: 20}}
env: {{TRAINMASTER_STEP_S: "{step_s}"}}
host: debug
"""


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    return {"TRAINMASTER_HOME": str(tmp_path / "home")}


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    (tmp_path / "corpus").mkdir()
    (tmp_path / "corpus" / "text.txt").write_text("A line of text to learn from.\n" * 400)
    return tmp_path / "corpus"


@asynccontextmanager
async def connected(
    environment: dict[str, str], era: str = "2026-07-28", **options: Any
) -> AsyncIterator[Client]:
    async with Client(build_server(environment, **options), mode=era) as client:
        yield client


@asynccontextmanager
async def connected_over_stdio(
    environment: dict[str, str], era: str, *options: str
) -> AsyncIterator[Client]:
    server = StdioServerParameters(
        command=sys.executable,
        args=["-c", "from trainmaster.cli import main; main()", "mcp", *options],
        env={**os.environ, **environment},
    )
    async with Client(server, mode=era) as client:
        yield client


async def answer_of(client: Client, name: str, **arguments: Any) -> dict[str, Any]:
    """A successful call's structured content, which the client has held against its schema."""
    result = await client.call_tool(name, arguments)
    text = result.content[0].text  # type: ignore[union-attr]
    assert not result.is_error, text
    content: dict[str, Any] | None = result.structured_content
    assert content is not None
    assert json.loads(text) == content
    assert _nulls(content) <= {"resume_from", "verified"}
    return content


async def error_of(client: Client, name: str, **arguments: Any) -> str:
    """A refused call's text, which is all that clients show of it."""
    result = await client.call_tool(name, arguments)
    assert result.is_error
    text = str(result.content[0].text)  # type: ignore[union-attr]
    assert " Fix: " in text
    assert text.endswith(("retryable=yes", "retryable=no"))
    return text


def _nulls(value: Any, key: str = "") -> set[str]:
    if isinstance(value, dict):
        return set().union(*(_nulls(item, name) for name, item in value.items()))
    if isinstance(value, list):
        return set().union(*(_nulls(item, key) for item in value))
    return {key} if value is None else set()


async def tools_of(environment: dict[str, str], era: str, **options: Any) -> list[Tool]:
    async with connected(environment, era, **options) as client:
        return (await client.list_tools()).tools


@_ERAS
def test_the_tools_are_the_golden_ones(environment: dict[str, str], era: str) -> None:
    tools = anyio.run(lambda: tools_of(environment, era))
    listed = [tool.model_dump(mode="json", by_alias=True, exclude_none=True) for tool in tools]
    text = f"{json.dumps(listed, indent=1, ensure_ascii=False, sort_keys=True)}\n"
    if _UPDATE:
        _GOLDEN.write_text(text)
    assert text == _GOLDEN.read_text()


def test_the_list_costs_a_client_little_context(environment: dict[str, str]) -> None:
    tools = anyio.run(lambda: tools_of(environment, "legacy"))
    described = [
        tool.name + str(tool.description) + json.dumps(tool.input_schema) for tool in tools
    ]
    assert sum(map(len, described)) <= 16_000
    assert max(len(str(tool.description).encode()) for tool in tools) < 2048


def test_every_tool_has_all_four_hints_and_every_parameter_the_common_words(
    environment: dict[str, str],
) -> None:
    tools = anyio.run(lambda: tools_of(environment, "legacy"))
    for tool in tools:
        assert tool.annotations is not None
        hints = tool.annotations.model_dump(by_alias=True)
        assert [
            name for name, value in hints.items() if name.endswith("Hint") and value is None
        ] == []
        known = f"{_COMMON_WORDS} {_OWN_WORDS} {_HOST_WORDS} {_METRIC_WORDS}".split()
        assert set(tool.input_schema["properties"]) <= set(known)
        assert tool.input_schema["additionalProperties"] is False


def test_read_only_leaves_only_what_changes_nothing(environment: dict[str, str]) -> None:
    tools = anyio.run(lambda: tools_of(environment, "legacy", read_only=True))
    assert tools
    assert all(tool.annotations and tool.annotations.read_only_hint for tool in tools)
    assert not {"launch", "stop", "resume", "add_host"} & {tool.name for tool in tools}
    beaten = {"read_only": True, "toolsets": ("operate",)}
    assert anyio.run(lambda: tools_of(environment, "legacy", **beaten)) == []


def test_toolsets_choose_among_the_tools_in_a_stable_order(environment: dict[str, str]) -> None:
    everything = anyio.run(lambda: tools_of(environment, "legacy"))
    turned = anyio.run(lambda: tools_of(environment, "legacy", toolsets=("operate", "observe")))
    operating = anyio.run(lambda: tools_of(environment, "legacy", toolsets=("operate",)))
    assert [tool.name for tool in turned] == [tool.name for tool in everything]
    assert [tool.name for tool in operating] == [
        "launch",
        "stop",
        "resume",
        "fetch_files",
        "add_host",
    ]
    with pytest.raises(UsageError, match="destroy"):
        build_server(environment, toolsets=("destroy",))


@pytest.mark.parametrize("read_only", [False, True])
def test_the_instructions_are_short(environment: dict[str, str], read_only: bool) -> None:
    instructions = build_server(environment, read_only=read_only).instructions
    assert instructions is not None
    assert len(instructions.encode()) < 2048
    assert ("read-only" in instructions) is read_only


@_ERAS
def test_a_refused_call_tells_code_fix_and_whether_to_retry(
    environment: dict[str, str], era: str
) -> None:
    async def scenario() -> None:
        async with connected(environment, era) as client:
            assert (await error_of(client, "no_such_tool")).startswith("BAD_ARGUMENT: ")
            assert "run_id (required)" in await error_of(client, "get_run")
            assert "runid" in await error_of(client, "get_run", run_id="x", runid="x")
            assert "detail" in await error_of(client, "get_run", run_id="x", detail=[1])
            assert "timeout_s" in await error_of(client, "wait_for_event", run_id="x", timeout_s=-1)
            unknown = await error_of(client, "get_run", run_id="no-such-run")
            assert unknown.startswith("RUN_NOT_FOUND: ")
            unreadable = await error_of(client, "plan_run", spec="name: [")
            assert unreadable.startswith("SPEC_NOT_READABLE: ")

    anyio.run(scenario)


def test_null_counts_as_not_given(environment: dict[str, str]) -> None:
    async def scenario() -> None:
        async with connected(environment) as client:
            assert await answer_of(client, "list_runs", state=None, limit=None) == {"runs": []}
            assert "run_id" in await error_of(client, "get_run", run_id=None)

    anyio.run(scenario)


def test_a_home_that_cannot_be_used_is_told_by_the_call_that_needs_it(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no folder")

    async def scenario() -> None:
        async with connected({"TRAINMASTER_HOME": str(tmp_path / "file" / "home")}) as client:
            assert (await client.list_tools()).tools
            assert (await error_of(client, "list_runs")).startswith("ROOT_NOT_WRITABLE: ")

    anyio.run(scenario)


async def explode() -> ReplayAnswer:
    """Fail."""
    raise ZeroDivisionError("a detail that may be secret")


async def sleep_long() -> ReplayAnswer:
    """Take longer than any call may."""
    await anyio.sleep(60)
    raise AssertionError


class _Impatient(AnsweringServer):
    longest_call_s = 0.05


def _impatient() -> MCPServer[OpenWorkspace]:
    definitions = (Definition(explode, "", READS), Definition(sleep_long, "", READS))
    return _Impatient("broken", tools=[build_tool(item) for item in definitions])


@_ERAS
def test_a_defect_is_internal_without_its_details_and_no_call_lasts_too_long(era: str) -> None:
    async def scenario() -> None:
        async with Client(_impatient(), mode=era) as client:
            defect = await error_of(client, "explode")
            assert defect.startswith("INTERNAL: ")
            assert "secret" not in defect
            slow = await error_of(client, "sleep_long")
            assert slow.endswith("retryable=yes")

    anyio.run(scenario)


@_ERAS
@pytest.mark.parametrize("connect", [connected, connected_over_stdio])
def test_a_run_is_launched_awaited_read_stopped_and_resumed(
    environment: dict[str, str], corpus: Path, era: str, connect: Any
) -> None:
    spec = _SPEC.format(corpus=corpus, steps=2000, step_s=0.01)

    async def scenario() -> None:
        async with connect(environment, era) as client:
            plan = await answer_of(client, "plan_run", spec=spec, set="optimizer.lr=0.001")
            assert plan["estimates"]["parameters"] > 0
            launched = await answer_of(client, "launch", spec=spec, idempotency_key="one")
            again = await answer_of(client, "launch", spec=spec, idempotency_key="one")
            run_id = launched["run_id"]
            assert again["run_id"] == run_id
            event = await _wait(client, run_id, "checkpoint")
            assert event["event"] == "checkpoint"
            log = await answer_of(client, "tail_log", run_id=run_id, limit=1)
            assert len(log["lines"]) == 1
            metrics = await answer_of(client, "query_metrics", run_id=run_id)
            assert set(metrics["runs"][run_id]) <= {"loss", "val_loss"}
            await answer_of(client, "stop", run_id=run_id)
            assert (await _wait(client, run_id, "end"))["event"] == "stopped"
            saved = await answer_of(client, "list_checkpoints", run_id=run_id)
            resumed = await answer_of(
                client, "resume", run_id=run_id, set=[f"steps={saved['resume_from'] + 20}"]
            )
            assert resumed["attempt"] == 2
            assert (await _wait(client, run_id, "completed"))["event"] == "completed"
            assert len((await answer_of(client, "list_runs"))["runs"]) == 1

    anyio.run(scenario)


async def _wait(client: Client, run_id: str, *until: str) -> dict[str, Any]:
    return await answer_of(client, "wait_for_event", run_id=run_id, until=list(until), timeout_s=40)


@_ERAS
def test_a_wait_shows_progress_and_its_timeout_names_the_shell_command(
    environment: dict[str, str], corpus: Path, era: str
) -> None:
    spec = _SPEC.format(corpus=corpus, steps=2000, step_s=0.05)
    seen: list[tuple[float, str | None]] = []

    async def listen(progress: float, total: float | None, message: str | None) -> None:
        seen.append((progress, message))

    async def scenario() -> None:
        async with connected(environment, era) as client:
            run_id = (await answer_of(client, "launch", spec=spec))["run_id"]
            result = await client.call_tool(
                "wait_for_event",
                {"run_id": run_id, "until": ["completed"], "timeout_s": 1.5},
                progress_callback=listen,
            )
            assert result.structured_content is not None
            assert result.structured_content["event"] == "timeout"
            assert result.structured_content["next_step"] == (
                f"trainmaster wait {run_id} --until completed --timeout 14400"
            )
            await answer_of(client, "stop", run_id=run_id)

    anyio.run(scenario)
    progresses = [progress for progress, _ in seen]
    assert len(progresses) >= 2
    assert progresses == sorted(set(progresses))
    assert all("step" in str(message) for _, message in seen)


def test_answers_fit_into_little_context(environment: dict[str, str], corpus: Path) -> None:
    spec = _SPEC.format(corpus=corpus, steps=300, step_s=0.001)
    log = corpus.parent / "long.log"
    log.write_text(f"{'a long line ' * 400}\n" * 200)

    async def scenario() -> None:
        async with connected(environment) as client:
            run_id = (await answer_of(client, "launch", spec=spec))["run_id"]
            await _wait(client, run_id, "end")
            for tokens, name, arguments in (
                (300, "get_run", {"run_id": run_id}),
                (250, "query_metrics", {"run_id": run_id, "key": "loss"}),
                (1200, "tail_log", {"run_id": run_id}),
                (1200, "tail_log", {"run_id": str(log)}),
            ):
                answer = await answer_of(client, name, **arguments)
                text = json.dumps(answer, ensure_ascii=False, separators=(",", ":"))
                assert len(text) <= tokens * _CHARACTERS_PER_TOKEN, (name, len(text))

    anyio.run(scenario)


def test_a_tool_answers_what_the_command_prints(
    environment: dict[str, str],
    corpus: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    spec = _SPEC.format(corpus=corpus, steps=40, step_s=0.001)

    async def answers() -> tuple[str, list[dict[str, Any]]]:
        async with connected(environment) as client:
            run_id = (await answer_of(client, "launch", spec=spec))["run_id"]
            await _wait(client, run_id, "end")
            checkpoints = await answer_of(client, "list_checkpoints", run_id=run_id)
            metrics = await answer_of(client, "query_metrics", run_id=run_id, points=20)
            return run_id, [checkpoints, metrics]

    run_id, answered = anyio.run(answers)
    monkeypatch.setenv("TRAINMASTER_HOME", environment["TRAINMASTER_HOME"])
    assert run(["checkpoints", run_id, "--json"]) == 0
    assert run(["metrics", run_id, "--json"]) == 0
    printed = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert printed == answered


@_ERAS
def test_the_command_serves_what_its_options_say(environment: dict[str, str], era: str) -> None:
    async def scenario() -> None:
        async with connected_over_stdio(environment, era, "--read-only") as client:
            assert "get_run" in {tool.name for tool in (await client.list_tools()).tools}
            assert await answer_of(client, "list_runs") == {"runs": []}
            assert (await error_of(client, "get_run", run_id="x")).startswith("RUN_NOT_FOUND: ")
            assert "There is no tool" in await error_of(client, "stop", run_id="x")

    anyio.run(scenario)


def test_importing_the_server_imports_no_service() -> None:
    script = (
        "import sys, trainmaster.mcp;"
        "heavy = {'jinja2', 'sqlite3', 'torch', 'trainmaster.launch', 'trainmaster.workspace'};"
        "print(sorted(heavy & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.stdout == "[]\n"


def test_waiting_names_every_event(environment: dict[str, str]) -> None:
    tools = anyio.run(lambda: tools_of(environment, "legacy"))
    waiting = next(tool for tool in tools if tool.name == "wait_for_event")
    described = waiting.input_schema["properties"]["until"]["description"]
    assert [event for event in EVENTS if event not in described] == []
