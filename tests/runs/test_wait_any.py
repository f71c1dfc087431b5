"""Waiting for several runs at once: each event once, whatever the cursor is from."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.runs.running_run import run_async, small_spec

from trainmaster.answers.runs import LaunchAnswer, WaitAnswer
from trainmaster.errors.errors import UsageError
from trainmaster.runs.events.event_watch import ALL_ENDED
from trainmaster.runs.events.positions import BEGINNING, Position, cursor_of_many, positions_after
from trainmaster.runs.events.wait import wait_for_event
from trainmaster.runs.events.wait_any import wait_for_any
from trainmaster.runs.launch.launch import launch
from trainmaster.runs.overview.overview import overview
from trainmaster.runs.stop import stop
from trainmaster.sync.workspace import Workspace

_WAIT_S = 60.0
_ROUTINE = ("eval", "checkpoint")
# Of a run that nothing happens to. A busy host may note that it runs after its first evaluation.
_STATES = ("preparing", "running", "completed")


class Runs:
    """Simulated runs, and waits for any of them."""

    def __init__(self, workspace: Workspace, folder: Path) -> None:
        self.workspace = workspace
        self._folder = folder
        self.seen: list[tuple[str, str, int | None]] = []

    async def launch(self, name: str, faults: str = "", **changes: str) -> LaunchAnswer:
        env = f'{{TRAINMASTER_FAULTS: "{faults}", TRAINMASTER_STEP_S: "0.002"}}'
        return await launch(
            self.workspace, small_spec(self._folder, name=name, host="debug", env=env, **changes)
        )

    async def wait(self, cursor: str | None, *until: str, runs: tuple[str, ...] = ()) -> WaitAnswer:
        answer = await wait_for_any(
            self.workspace, runs, until=until, timeout_s=_WAIT_S, cursor=cursor
        )
        self.seen += [(str(one.run_id), one.event, one.step) for one in answer.changes]
        return answer


@pytest.fixture
def runs(workspace: Workspace, tmp_path: Path) -> Runs:
    return Runs(workspace, tmp_path)


@pytest.mark.slow
def test_every_event_of_every_run_is_reported_once(runs: Runs) -> None:
    async def work() -> None:
        first, second = await runs.launch("one", "kill@33"), await runs.launch("two")
        cursor, ended, both = "w2", [], (first.run_id, second.run_id)
        while True:
            answer = await runs.wait(cursor, "end", *_ROUTINE, "recovering", runs=both)
            cursor = answer.cursor
            if answer.event == ALL_ENDED:
                break
            ended += [answer.run_id] if answer.event == "completed" else []
            assert answer.event in (*_ROUTINE, "recovering", "completed")
        assert (answer.still_open, answer.changes) == (0, [])
        assert set(ended) <= set(both)
        for run in both:
            whole = await wait_for_event(
                runs.workspace, run, until=_ROUTINE, timeout_s=5.0, cursor=str(BEGINNING)
            )
            reported = [(event, step) for name, event, step in runs.seen if name == run]
            assert reported == [(one.event, one.step) for one in whole.changes]
        assert (first.run_id, "recovering", None) in runs.seen
        assert (await runs.wait(cursor, "end", runs=both)).event == ALL_ENDED

    run_async(work)


@pytest.mark.slow
def test_a_cursor_of_an_overview_or_of_a_launch_continues_a_wait(runs: Runs) -> None:
    async def work() -> None:
        before = (await overview(runs.workspace)).cursor
        launched = await runs.launch("one", steps="40")
        answer = await runs.wait(before, "end")
        assert (answer.event, answer.run_id) == ("completed", launched.run_id)
        states = [one.event for one in answer.changes if one.event in _STATES]
        assert states == list(_STATES)
        again = await wait_for_event(
            runs.workspace, launched.run_id, timeout_s=_WAIT_S, cursor=answer.cursor
        )
        assert (again.event, again.changes) == ("completed", [])
        of_launch = await runs.wait(launched.cursor, "end", runs=(launched.run_id,))
        assert len(of_launch.changes) == len(answer.changes)
        after = await overview(runs.workspace, cursor=before)
        assert [line.split()[:2] for line in after.ended] == [["one", "completed"]]
        assert (await overview(runs.workspace, cursor=after.cursor)).ended in ([], after.ended)

    run_async(work)


@pytest.mark.slow
def test_a_time_out_names_the_command_that_waits_for_all_of_them(runs: Runs) -> None:
    async def work() -> None:
        launched = [await runs.launch(name, steps="100000") for name in ("one", "two")]
        answer = await wait_for_any(runs.workspace, until=("failed",), timeout_s=0.2)
        assert (answer.event, answer.run_id, answer.still_open) == ("timeout", None, 2)
        for one in launched:
            assert one.run_id in answer.next_step
            await stop(runs.workspace, one.run_id, grace_s=0.0)
        assert f"--until failed --cursor {answer.cursor} --timeout 14400" in answer.next_step

    run_async(work)


def test_a_cursor_of_another_kind_is_refused(workspace: Workspace) -> None:
    many = cursor_of_many({"a-abcdef": Position(1, -1, 0, -1), "b-bcdefg": Position(2, 7, 3, 12)})
    found = positions_after(workspace, ["b-bcdefg", "c-cdefgh"], many)
    assert found == {"b-bcdefg": Position(2, 7, 3, 12), "c-cdefgh": BEGINNING}
    for wrong in (
        "w1.1.-1.0.-1",
        "w2.x",
        "o1.",
        "o1.99999999999999999",
        "nothing",
        f"w2{'.a' * 9}",
    ):
        with pytest.raises(UsageError) as refused:
            positions_after(workspace, ["a-abcdef", "b-bcdefg"], wrong)
        assert refused.value.code == "CURSOR_INVALID"


@pytest.mark.slow
def test_of_many_changes_routine_that_nobody_waits_for_counts_by_its_newest(runs: Runs) -> None:
    async def work() -> None:
        run = (await runs.launch("one", eval="{every_steps: 5, batches: 2}")).run_id
        cursor = str(BEGINNING)
        ended = await wait_for_event(
            runs.workspace, run, until=("end",), timeout_s=_WAIT_S, cursor=cursor
        )
        whole = await wait_for_event(
            runs.workspace, run, until=_ROUTINE, timeout_s=_WAIT_S, cursor=cursor
        )
        evals = [one.step for one in ended.changes if one.event == "eval"]
        assert evals == [60]
        assert len(ended.changes) + (ended.omitted or 0) == len(whole.changes) >= 12

    run_async(work)
