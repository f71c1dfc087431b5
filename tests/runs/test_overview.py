"""One call says how everything is: what needs attention first, in few tokens."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

import anyio
import pytest
from support.core.journal_records import (
    EventBody,
    attempt_ended,
    attempt_starting,
    lines,
    metric,
    started,
    state,
)
from support.mcp.mcp_client import answer_of, connected
from support.mcp.tokens import tokens_of
from support.runs.planted_runs import finding
from support.runs.running_run import CommandLine, run_async

from trainer_runtime.core.protocol.desired import Desired
from trainer_runtime.core.protocol.states import DesiredState
from trainmaster.board.reads import Reads
from trainmaster.runs.overview.overview import overview
from trainmaster.store.run import Run
from trainmaster.sync.ingest import ingest_placement
from trainmaster.sync.workspace import Workspace

_CONFIG = {"name": "x", "framework": "nanogpt", "method": "pretrain", "steps": 1000}
_RUNNING = (attempt_starting(1), state("preparing"), state("running"))
_FAILED = (*_RUNNING, attempt_ended(1, "crashed"), state("failed", reason="crashed"))
_COMPLETED = (*_RUNNING, attempt_ended(1, "completed"), state("completed", reason="completed"))


_SPIKED = "spiked 39/1000, loss 2.61, 32 min to go: loss_spike 0b0b0b0b"


def plant(workspace: Workspace, name: str, *journal: EventBody, ago_s: float = 60.0) -> str:
    """A run whose journal this is, with some steps."""
    run_id = f"{name}-abc{len(workspace.control.runs()):03d}".translate(str.maketrans("01", "xy"))
    run = Run(run_id, name, time.time(), "nowhere", "", _CONFIG, {}, {}, closed=True)
    workspace.control.add_run(run, Desired(DesiredState.RUNNING, 1), "process", "/x", None)
    metrics = workspace.metrics  # opened before anything is mirrored: nothing is to be rebuilt
    mirror = workspace.mirror.of(run_id, 1)
    steps = [metric(n, 3.0 - n / 100, step_time_s=2.0) for n in range(1, 40)]
    first_t = time.time() - ago_s
    events = lines((started(0, 1000), *steps), first_t=first_t)
    mirror.append("attempts/1/events.jsonl", b"".join(events))
    mirror.append("supervisor.jsonl", b"".join(lines(journal, first_t=first_t)))
    ingest_placement(metrics, mirror, run_id, 1)
    return run_id


def test_what_needs_attention_comes_first_and_names_what_to_do(workspace: Workspace) -> None:
    async def work() -> None:
        plant(workspace, "fine", *_RUNNING)
        spiked = finding("0b0b0b0b", "loss_spike", "warning")
        plant(workspace, "spiked", *_RUNNING, spiked)
        plant(workspace, "silent", *_RUNNING, ago_s=7200.0)
        failed = plant(workspace, "broken", *_FAILED, finding("0a0a0a0a"))
        plant(workspace, "done", *_COMPLETED)
        found = await overview(workspace)
        assert found.attention[0] == "broken failed: cuda_oom 0a0a0a0a"
        assert set(found.attention[1:]) >= {"silent lost on nowhere", _SPIKED}
        assert "nowhere not reached; 3 of its runs are open" in found.attention
        assert failed in found.next_step
        waiting = f"`trainmaster wait --until finding,end --timeout 3600 --cursor {found.cursor}`"
        assert waiting in found.next_step  # for what runs meanwhile
        assert [line.split(",")[0] for line in found.running] == ["fine 39/1000"]
        assert [line.split(",")[0] for line in found.ended] == ["done completed 39/1000"]
        later = await overview(workspace, cursor=found.cursor)
        assert later.ended == []
        assert [line for line in later.attention if "broken" in line] == []

    run_async(work)


def test_what_loses_most_in_an_hour_stands_first_on_every_face(
    workspace: Workspace, environment: dict[str, str], command: CommandLine
) -> None:
    plant(workspace, "spiked-once", *_COMPLETED, finding("0c0c0c0c", "loss_spike", "warning"))
    plant(workspace, "warned", *_RUNNING, finding("0b0b0b0b", "loss_spike", "warning"))
    plant(workspace, "broken", *_FAILED, finding("0a0a0a0a"))
    plant(workspace, "hung", *_RUNNING, finding("0d0d0d0d", "hang_collective"))

    async def over_mcp() -> list[str]:
        async with connected(environment, read_only=True) as client:
            found: list[str] = (await answer_of(client, "overview"))["attention"]
            return found

    async def on_board() -> list[str]:
        return (await Reads(workspace).board()).attention

    expected = ["hung", "broken", "warned", "spiked-once"]
    for attention in (run_async(on_board), command("overview")["attention"], anyio.run(over_mcp)):
        named = [line.split()[0] for line in attention]
        shown = [name for name in named if name in expected]
        assert shown == expected[: len(shown)] and named[0] == "hung", attention
    attention = run_async(on_board)
    assert [line.split()[0] for line in attention if line.split()[0] in expected] == expected
    assert "keeper" in attention[-1].lower()


def test_out_of_memory_is_not_over_while_the_same_arguments_run_again(
    workspace: Workspace, command: CommandLine
) -> None:
    oom = (*_RUNNING, finding("0a0a0a0a", step=41), attempt_ended(1, "crashed", last_step=41))
    again = (*oom, state("recovering", reason="crashed"), attempt_starting(2), state("running"))
    same = plant(workspace, "same", *again)
    smaller = attempt_starting(2, set={"batch.micro_batch": 4})
    plant(workspace, "smaller", *oom, state("recovering"), smaller, state("running"))
    found = command("overview")
    assert any(line.startswith("same") and "cuda_oom" in line for line in found["attention"])
    assert not any(line.startswith("smaller") for line in found["attention"])
    (still,) = command("diagnose", same)["findings"]
    assert still["code"] == "cuda_oom" and "over" not in still


def test_the_same_lines_are_shown_wherever_the_program_lies(
    workspace: Workspace, command: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("first", "second", "third"):
        plant(workspace, name, *_FAILED, finding("0a0a0a0a"))
    near = command("overview")
    far = tmp_path / ("far" * 80) / "python"
    far.parent.mkdir()
    far.symlink_to(sys.executable)
    monkeypatch.setattr(sys, "executable", str(far))
    shown = command("overview")
    assert str(far) in shown["next_step"]
    assert len(near["attention"]) >= 3
    assert shown["attention"] == near["attention"]


def test_nothing_at_all_names_the_way_in(workspace: Workspace) -> None:
    async def work() -> None:
        found = await overview(workspace)
        assert (found.attention, found.running, found.ended) == ([], [], [])
        assert "trainmaster launch SPEC" in found.next_step

    run_async(work)


def test_twenty_runs_fit_into_three_hundred_tokens(
    workspace: Workspace, environment: dict[str, str], tmp_path: Path
) -> None:
    for n in range(20):
        journal = _FAILED if n % 7 == 0 else _COMPLETED if n % 5 == 0 else _RUNNING
        hit = [finding(f"{n:08x}", "loss_spike", "warning")] if n % 3 == 0 else []
        plant(workspace, f"gpt-medium-lr{n}", *journal, *hit)

    async def ask() -> dict[str, Any]:
        async with connected(environment, read_only=True) as client:
            return await answer_of(client, "overview")

    answer = anyio.run(ask)
    assert tokens_of(answer, tmp_path) <= 300, answer
    assert len(answer["attention"]) >= 3
    assert answer["attention"][0].startswith("gpt-medium-lr")
    assert "failed" in answer["attention"][0]
    assert (
        sum(answer["shortened"].values())
        + sum(len(answer[name]) for name in ("attention", "running", "ended"))
        >= 20
    )


@pytest.mark.parametrize("cursor", ["x", "w2", "o1.1.2"])
def test_a_cursor_of_something_else_is_refused(workspace: Workspace, cursor: str) -> None:
    async def work() -> None:
        with pytest.raises(Exception, match="is not a cursor of `overview`"):
            await overview(workspace, cursor=cursor)

    run_async(work)
