from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from support.runs.running_run import run_async, small_spec

from trainer_runtime.core.protocol.states import RunState
from trainmaster.answers.runs import Change, WaitAnswer
from trainmaster.answers.status import StatusAnswer
from trainmaster.errors.errors import StateError, UsageError
from trainmaster.runs.events.event_watch import wanted_event
from trainmaster.runs.events.wait import exit_code, wait_for_event
from trainmaster.runs.launch.launch import launch
from trainmaster.runs.resume.resume import resume
from trainmaster.runs.stop import stop
from trainmaster.sync.workspace import Workspace

WAIT_S = 60.0


class Waiting:
    """Simulated runs, and waits for what they do."""

    def __init__(self, workspace: Workspace, folder: Path) -> None:
        self.workspace = workspace
        self._folder = folder

    async def launch(self, faults: str = "", step_s: float = 0.0, **changes: str) -> str:
        variables = f'{{TRAINMASTER_FAULTS: "{faults}", TRAINMASTER_STEP_S: "{step_s}"}}'
        spec = small_spec(self._folder, host="debug", env=variables, **changes)
        return (await launch(self.workspace, spec)).run_id

    async def wait(
        self, run: str, *until: str, cursor: str | None = None, timeout_s: float = WAIT_S
    ) -> WaitAnswer:
        return await wait_for_event(
            self.workspace, run, until=until, cursor=cursor, timeout_s=timeout_s
        )


@pytest.fixture
def waiting(workspace: Workspace, tmp_path: Path) -> Waiting:
    return Waiting(workspace, tmp_path)


def events(answer: WaitAnswer) -> list[str]:
    return [change.event for change in answer.changes]


@pytest.mark.slow
def test_each_kind_of_event_ends_the_wait_for_it(waiting: Waiting) -> None:
    async def work() -> None:
        run = await waiting.launch(step_s=0.01)
        beginning = "w1.1.-1.0.-1"
        for wanted in ("running", "step:10", "eval", "checkpoint"):
            answer = await waiting.wait(run, wanted, cursor=beginning)
            assert answer.event == wanted
        assert answer.step >= 20
        assert (await waiting.wait(run, "step:40")).step >= 40
        assert (await waiting.wait(run, "end")).state == "completed"

    run_async(work)


@pytest.mark.slow
def test_a_cursor_gives_each_change_once_and_in_order(waiting: Waiting) -> None:
    async def work() -> None:
        run = await waiting.launch("kill@33", step_s=0.003)
        seen: list[str] = []
        cursor = "w1.1.-1.0.-1"
        while True:
            answer = await waiting.wait(run, "checkpoint", "eval", "recovering", cursor=cursor)
            seen += events(answer)
            cursor = answer.cursor
            if answer.state == "completed":
                break
        rest = await waiting.wait(run, "checkpoint", cursor=cursor)
        assert (rest.event, rest.changes) == ("completed", [])
        assert [name for name in seen if name in ("checkpoint", "eval")] == [
            *["eval", "checkpoint"] * 3
        ]
        # A finding on what SIGKILL may have been for depends on the machine's memory.
        assert [name for name in seen if name not in ("checkpoint", "eval", "finding")] == [
            "preparing",
            "running",
            "attempt_ended",
            "recovering",
            "running",
            "attempt_ended",
            "completed",
        ]

    run_async(work)


@pytest.mark.slow
def test_what_was_before_the_call_does_not_count_without_a_cursor(waiting: Waiting) -> None:
    async def work() -> None:
        run = await waiting.launch(step_s=0.02, steps="6000", checkpoint="{every: 10}")
        await waiting.wait(run, "step:15")
        answer = await waiting.wait(run, "checkpoint")
        assert (
            min(change.step or 0 for change in answer.changes if change.event == "checkpoint") > 10
        )
        await stop(waiting.workspace, run, grace_s=0.0)

    run_async(work)


def test_a_state_or_step_that_is_reached_already_is_an_event_at_once(waiting: Waiting) -> None:
    async def work() -> None:
        run = await waiting.launch()
        await waiting.wait(run, "completed")
        for wanted in ("completed", "end", "step:60"):
            answer = await waiting.wait(run, wanted, timeout_s=0.0)
            assert answer.event in (wanted, "completed")
            assert exit_code(answer, [wanted]) == 0

    run_async(work)


@pytest.mark.parametrize(("faults", "state"), [("unusable@3", "failed"), ("", "completed")])
def test_any_end_of_the_run_ends_any_wait(waiting: Waiting, faults: str, state: str) -> None:
    async def work() -> None:
        run = await waiting.launch(faults)
        answer = await waiting.wait(run, "step:5000")
        assert (answer.event, answer.state) == (state, state)
        assert exit_code(answer, ["step:5000"]) == 3
        assert exit_code(answer, ["end"]) == 0

    run_async(work)


def test_a_guard_that_strikes_is_a_finding(waiting: Waiting) -> None:
    async def work() -> None:
        run = await waiting.launch("nan@30", step_s=0.005)
        answer = await waiting.wait(run, "finding", cursor="w1.1.-1.0.-1")
        assert answer.event == "finding"
        (found,) = [change for change in answer.changes if change.event == "finding"]
        assert (found.step, found.detail) == (30, "nan_loss")
        assert (await waiting.wait(run, "completed")).event == "completed"

    run_async(work)


@pytest.mark.slow
def test_a_checkpoint_passed_over_is_shown_with_its_reason(waiting: Waiting) -> None:
    async def work() -> None:
        run = await waiting.launch("damage@47")
        answer = await waiting.wait(run, "completed", cursor="w1.1.-1.0.-1")
        (skipped,) = [item for item in answer.changes if item.event == "checkpoint_skipped"]
        assert skipped.step == 40
        assert "model.bin" in (skipped.untrusted_detail or "")

    run_async(work)


@pytest.mark.slow
def test_a_wait_that_runs_out_says_how_to_continue(waiting: Waiting) -> None:
    async def work() -> None:
        run = await waiting.launch(step_s=0.5)
        await waiting.wait(run, "running")
        answer = await waiting.wait(run, "completed", "eval", timeout_s=0.3)
        assert (answer.event, answer.state) == ("timeout", "running")
        assert exit_code(answer, ["completed"]) == 4
        assert answer.next_step.startswith(f"`$ trainmaster wait {run} --until completed,eval")
        await stop(waiting.workspace, run, grace_s=0.0)
        assert (await waiting.wait(run, "stopped")).event == "stopped"

    run_async(work)


def test_a_resumed_run_is_not_ended_for_a_wait_that_follows(waiting: Waiting) -> None:
    async def work() -> None:
        run = await waiting.launch()
        ended = await waiting.wait(run, "completed")
        await resume(waiting.workspace, run, sets=["steps=80"])
        answer = await waiting.wait(run, "completed", cursor=ended.cursor)
        assert (answer.event, answer.step) == ("completed", 80)
        assert events(answer)[0] == "preparing"

    run_async(work)


@pytest.mark.slow
def test_a_waiting_caller_is_shown_the_progress(waiting: Waiting) -> None:
    async def work() -> None:
        run = await waiting.launch(step_s=0.005)
        shown: list[StatusAnswer] = []

        async def show(status: StatusAnswer) -> None:
            shown.append(status)

        await wait_for_event(
            waiting.workspace, run, until=["completed"], timeout_s=WAIT_S, on_progress=show
        )
        assert shown and shown[0].run_id == run

    run_async(work)


@pytest.mark.parametrize("until", ["complete", "step:", "step:-1", "step:1e3", ""])
def test_an_event_that_does_not_exist_is_refused(waiting: Waiting, until: str) -> None:
    with pytest.raises(UsageError) as refused:
        run_async(lambda: waiting.wait("any", until))
    assert (refused.value.code, refused.value.field) == ("BAD_ARGUMENT", "until")


def test_a_cursor_of_something_else_is_refused(waiting: Waiting) -> None:
    async def work() -> None:
        run = await waiting.launch()
        for cursor in ("x", "w2.1.1.1.1", "l1.train.1.0", "w1.1.1.1", f"w1.1.{9**30}.1.1"):
            with pytest.raises(UsageError) as refused:
                await waiting.wait(run, "end", cursor=cursor)
            assert refused.value.code == "CURSOR_INVALID", cursor

    run_async(work)


def test_a_run_that_does_not_exist_is_reported(waiting: Waiting) -> None:
    with pytest.raises(StateError, match="No run is called"):
        run_async(lambda: waiting.wait("gone", "end"))


def test_a_run_that_waits_for_its_turn_is_not_given_as_running() -> None:
    changes = [Change(event="running", t=1.0)]

    def event(state: RunState) -> str | None:
        view: Any = SimpleNamespace(state=state, step=3)
        return wanted_event(("running",), view, changes)

    assert event(RunState.QUEUED) is None
    assert event(RunState.RUNNING) == event(RunState.COMPLETED) == "running"
