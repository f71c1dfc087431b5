"""Calls of tools, as a client sees them: answers, refusals, and what they cost."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp import Client
from mcp.server import MCPServer
from support.mcp.mcp_client import answer_of, connected, connected_over_stdio, error_of, wait_for
from support.mcp.tokens import tokens_of
from support.runs.running_run import kill_processes
from support.session.tiers import at_length

from trainmaster.answers.runs import ReplayAnswer, StopAnswer
from trainmaster.calls.stages import enter_stage
from trainmaster.cli import run
from trainmaster.mcp.definition import READS, Definition, OpenWorkspace, build_tool
from trainmaster.mcp.error_mapping import AnsweringServer

_ERAS = pytest.mark.parametrize("era", ["legacy", "2026-07-28"])
_MEGATRON = (
    " iteration {0:8d}/ 500000 | consumed samples: 16032 | elapsed time per iteration (ms): "
    "2245.5 | learning rate: 4.498E-06 | global batch size: 1024 | lm loss: {1:.6E} | "
    "loss scale: 1.0 | grad norm: 1.324 |\n validation loss at iteration {0} | lm loss value: "
    "{2:.6E} | lm loss PPL: 1.5E+01 |\n"
)
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


@_ERAS
def test_a_refused_call_reports_code_fix_and_whether_to_retry(
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


@pytest.mark.slow
def test_null_counts_as_not_given(environment: dict[str, str]) -> None:
    async def scenario() -> None:
        async with connected(environment) as client:
            assert await answer_of(client, "list_runs", state=None, limit=None) == {"runs": []}
            assert "run_id" in await error_of(client, "get_run", run_id=None)

    anyio.run(scenario)


def test_a_home_that_cannot_be_used_is_reported_by_the_call_that_needs_it(tmp_path: Path) -> None:
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


class _Lively(AnsweringServer):
    heartbeat_s = 0.01


@_ERAS
def test_a_long_call_reports_what_it_does_while_it_lasts(era: str) -> None:
    seen: list[tuple[float, str | None]] = []

    async def scenario() -> None:
        reported = anyio.Event()

        async def work() -> StopAnswer:
            """Work until three reports have arrived."""
            enter_stage("sending r-a")
            await reported.wait()
            return StopAnswer(run_id="r-a", state="stopped", next_step="")

        async def listen(progress: float, total: float | None, message: str | None) -> None:
            seen.append((progress, message))
            if len(seen) == 3:
                reported.set()

        server = _Lively("lively", tools=[build_tool(Definition(work, "", READS))])
        async with Client(server, mode=era) as client:
            result = await client.call_tool("work", {}, progress_callback=listen)
            assert not result.is_error, result.content

    anyio.run(scenario)
    assert {message for _, message in seen} == {"sending r-a"}
    assert [progress for progress, _ in seen] == sorted({progress for progress, _ in seen})


@pytest.mark.slow
@pytest.mark.parametrize(
    ("connect", "era"),
    [
        (connected, "legacy"),
        (connected_over_stdio, "2026-07-28"),
        *at_length((connected, "2026-07-28"), (connected_over_stdio, "legacy")),
    ],
)
def test_a_run_is_launched_awaited_read_stopped_and_resumed(
    environment: dict[str, str], corpus: Path, era: str, connect: Any
) -> None:
    spec = _SPEC.format(corpus=corpus, steps=20_000, step_s=0.01)

    async def scenario() -> None:
        async with connect(environment, era) as client:
            plan = await answer_of(client, "plan_run", spec=spec, set="optimizer.lr=0.001")
            assert plan["estimates"]["parameters"] > 0
            launched = await answer_of(client, "launch", spec=spec, idempotency_key="one")
            again = await answer_of(client, "launch", spec=spec, idempotency_key="one")
            run_id = launched["run_id"]
            assert again["run_id"] == run_id
            event = await wait_for(client, run_id, "checkpoint")
            assert event["event"] == "checkpoint"
            log = await answer_of(client, "tail_log", run_id=run_id, limit=1)
            assert len(log["lines"]) == 1
            metrics = await answer_of(client, "query_metrics", run_id=run_id)
            assert set(metrics["runs"][run_id]) <= {"loss", "val_loss"}
            await answer_of(client, "stop", run_id=run_id)
            assert (await wait_for(client, run_id, "end"))["event"] == "stopped"
            elsewhere = await error_of(client, "resume", run_id=run_id, host="local")
            assert elsewhere.startswith("BAD_ARGUMENT") and "can't be migrated" in elsewhere
            saved = await answer_of(client, "list_checkpoints", run_id=run_id)
            resumed = await answer_of(
                client, "resume", run_id=run_id, set=[f"steps={saved['resume_from'] + 20}"]
            )
            assert resumed["attempt"] == 2
            assert (await wait_for(client, run_id, "completed"))["event"] == "completed"
            assert len((await answer_of(client, "list_runs"))["runs"]) == 1

    anyio.run(scenario)


@pytest.mark.slow
def test_a_training_of_others_is_watched_and_not_stopped(
    environment: dict[str, str], tmp_path: Path
) -> None:
    log = tmp_path / "theirs.log"
    log.write_text("iter 0: loss 3.5000, time 50.00ms\niter 1: loss 3.4000, time 50.00ms\n")

    async def scenario() -> None:
        async with connected(environment, "legacy") as client:
            attached = await answer_of(client, "attach", log=str(log), idempotency_key="one")
            run_id = attached["run_id"]
            assert (await wait_for(client, run_id, "step:1"))["event"] == "step:1"
            assert (await error_of(client, "stop", run_id=run_id)).startswith("ATTACHED_READ_ONLY")
            missing = await error_of(client, "attach", log=str(tmp_path / "nothing.log"))
            assert missing.startswith("LOG_NOT_READABLE")

    try:
        anyio.run(scenario)
    finally:
        kill_processes(Path(environment["TRAINMASTER_HOME"]) / "local")


@pytest.mark.slow
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
                {"run_id": run_id, "until": ["completed"], "timeout_s": 6.0},
                progress_callback=listen,
            )
            assert result.structured_content is not None
            assert result.structured_content["event"] == "timeout"
            waits = result.structured_content["next_step"]
            cursor = result.structured_content["cursor"]
            wait = f" wait {run_id} --until completed --timeout 14400 --cursor {cursor}"
            assert waits.endswith(wait)
            assert f"trainmaster --home {shlex.quote(environment['TRAINMASTER_HOME'])} " in waits
            await answer_of(client, "stop", run_id=run_id)

    anyio.run(scenario)
    progresses = [progress for progress, _ in seen]
    assert len(progresses) >= 2
    assert progresses == sorted(set(progresses))
    assert all("step" in str(message) for _, message in seen)


@pytest.mark.slow
def test_answers_fit_into_little_context(
    environment: dict[str, str], corpus: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = _SPEC.format(corpus=corpus, steps=300, step_s=0.001)
    spec = spec.replace("env: {", 'env: {TRAINMASTER_FAULTS: "kill@120 nan@150 oom@250", ')
    log = corpus.parent / "long.log"
    log.write_text(f"{'a long line 0.12 ' * 400}\n" * 200)
    numbers = Path("numbers.log")
    monkeypatch.chdir(corpus.parent)
    numbers.write_text("".join(_MEGATRON.format(n, 12 / n, 10 / n) for n in range(1, 3000)))

    async def scenario() -> None:
        async with connected(environment) as client:
            run_id = (await answer_of(client, "launch", spec=spec))["run_id"]
            await wait_for(client, run_id, "end")
            for budget, name, arguments in (
                (300, "get_run", {"run_id": run_id}),
                (250, "query_metrics", {"run_id": run_id}),
                (250, "query_metrics", {"run_id": str(numbers)}),
                (250, "query_metrics", {"run_id": run_id, "key": "loss"}),
                (1200, "tail_log", {"run_id": run_id}),
                (1200, "tail_log", {"run_id": str(log)}),
                (1200, "tail_log", {"run_id": str(numbers)}),
            ):
                answer = await answer_of(client, name, **arguments)
                assert tokens_of(answer, corpus.parent) <= budget, (name, answer)

    anyio.run(scenario)


@pytest.mark.slow
def test_detail_reports_the_risks_of_the_status_page(
    environment: dict[str, str], corpus: Path
) -> None:
    spec = _SPEC.format(corpus=corpus, steps=4000, step_s=0.02).replace(
        "{every: 20}", "{every: 4000}"
    )

    async def scenario() -> None:
        async with connected(environment) as client:
            run_id = (await answer_of(client, "launch", spec=spec))["run_id"]
            await wait_for(client, run_id, "step:5")
            status = await answer_of(client, "get_run", run_id=run_id, detail=True)
            assert status["risks"] == ["No verified checkpoint yet: a crash now loses everything."]
            await answer_of(client, "stop", run_id=run_id)
            await wait_for(client, run_id, "end")
            status = await answer_of(client, "get_run", run_id=run_id, detail=True)
            assert "risks" not in status

    anyio.run(scenario)


@pytest.mark.slow
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
            await wait_for(client, run_id, "end")
            checkpoints = await answer_of(client, "list_checkpoints", run_id=run_id)
            metrics = await answer_of(client, "query_metrics", run_id=run_id, points=20)
            return run_id, [checkpoints, metrics]

    run_id, answered = anyio.run(answers)
    monkeypatch.setenv("TRAINMASTER_HOME", environment["TRAINMASTER_HOME"])
    assert run(["checkpoints", run_id, "--json"]) == 0
    assert run(["metrics", run_id, "--json"]) == 0
    printed = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert printed == answered


@pytest.mark.slow
@pytest.mark.parametrize("era", ["2026-07-28", *at_length("legacy")])
def test_the_command_serves_what_its_options_say(environment: dict[str, str], era: str) -> None:
    async def scenario() -> None:
        async with connected_over_stdio(environment, era, "--read-only") as client:
            assert "get_run" in {tool.name for tool in (await client.list_tools()).tools}
            assert await answer_of(client, "list_runs") == {"runs": []}
            assert (await error_of(client, "get_run", run_id="x")).startswith("RUN_NOT_FOUND: ")
            assert "Unknown tool" in await error_of(client, "stop", run_id="x")

    anyio.run(scenario)
