from __future__ import annotations

import json
import sqlite3
from pathlib import Path
from typing import Any

import pytest
from support.runs.running_run import run_async, small_spec

from trainer_runtime.core.protocol.desired import Desired
from trainer_runtime.core.protocol.states import DesiredState
from trainmaster.errors.errors import SpecError, StateError, TrainmasterError, UsageError
from trainmaster.metrics.run_series import attempt_points
from trainmaster.runs.clean import clean
from trainmaster.runs.events.wait import wait_for_event
from trainmaster.runs.launch.launch import launch
from trainmaster.runs.lists.list_checkpoints import list_checkpoints
from trainmaster.runs.metrics.query_metrics import query_metrics
from trainmaster.runs.resume.resume import resume
from trainmaster.runs.status.status import get_status
from trainmaster.runs.stop import stop
from trainmaster.sync.workspace import Workspace

VARIABLES = '{TRAINMASTER_STEP_S: "0"}'


class Runs:
    """Simulated runs that have come to an end."""

    def __init__(self, workspace: Workspace, folder: Path) -> None:
        self.workspace = workspace
        self._folder = folder

    async def launch(self, env: str = VARIABLES, **changes: str) -> str:
        spec = small_spec(self._folder, host="debug", env=env, **changes)
        return (await launch(self.workspace, spec)).run_id

    async def ended(self, env: str = VARIABLES, **changes: str) -> str:
        run = await self.launch(env, **changes)
        await self.wait(run)
        return run

    async def wait(self, run: str) -> str:
        return (await wait_for_event(self.workspace, run, until=["end"], timeout_s=60)).state

    async def refusal(self, run: str, **arguments: Any) -> TrainmasterError:
        """The error of a resume that must change nothing."""
        before = self.on_record(run)
        with pytest.raises(TrainmasterError) as refused:
            await resume(self.workspace, run, **arguments)
        assert self.on_record(run) == before
        return refused.value

    def on_record(self, run: str) -> tuple[Any, ...]:
        found = self.workspace.control.run(run)
        return found.spec, found.config, self.workspace.control.desired(run)

    def sent(self, run: str) -> dict[str, Any]:
        """What the newest request changes."""
        return dict(self.workspace.control.desired(run)[0].set)

    def attempt_config(self, run: str, number: int) -> dict[str, Any]:
        folder = Path(self.workspace.control.folder(self.workspace.control.run(run)))
        config: dict[str, Any] = json.loads(
            (folder / "attempts" / str(number) / "config.json").read_bytes()
        )
        return config


@pytest.fixture
def runs(workspace: Workspace, tmp_path: Path) -> Runs:
    return Runs(workspace, tmp_path)


def test_a_running_run_is_not_resumed(runs: Runs) -> None:
    async def work() -> None:
        run = await runs.launch('{TRAINMASTER_STEP_S: "0.2"}', steps="600")
        refused = await runs.refusal(run)
        assert refused.code == "RUN_IS_RUNNING"
        await stop(runs.workspace, run, grace_s=0.0)
        assert await runs.wait(run) == "stopped"

    run_async(work)


@pytest.mark.slow
def test_a_completed_run_needs_something_left_to_do(runs: Runs) -> None:
    async def work() -> None:
        run = await runs.ended()
        for sets in ([], ["steps=60"], ["steps=50"]):
            assert (await runs.refusal(run, sets=sets)).code == "RUN_ENDED"
        await resume(runs.workspace, run, sets=["steps=70"])
        assert await runs.wait(run) == "completed"
        assert (await get_status(runs.workspace, run)).step == 70
        assert runs.attempt_config(run, 2)["attempt"]["resume"]["candidates"] == [60, 40, 20]

    run_async(work)


@pytest.mark.slow
def test_what_a_run_is_made_of_cannot_change(runs: Runs) -> None:
    changes = ["model.n_layer=2", "data.seq_len=64", "seed=1", "name=other", "framework=hf"]

    async def work() -> None:
        run = await runs.ended()
        for change in changes:
            refused = await runs.refusal(run, start="20", sets=["steps=90", change])
            assert isinstance(refused, SpecError)
            assert refused.field == change.partition("=")[0]

    run_async(work)


@pytest.mark.slow
def test_a_change_that_makes_no_sense_is_refused(runs: Runs) -> None:
    codes = {
        "optimizer.moment=0.5": "UNKNOWN_KEY",
        "optimizer.lr=fast": "INVALID_VALUE",
        "steps=-5": "INVALID_VALUE",
        "recovery.max_restarts": "INVALID_VALUE",
    }

    async def work() -> None:
        run = await runs.ended()
        refusals = {set_: await runs.refusal(run, start="20", sets=[set_]) for set_ in codes}
        assert {change: refusal.code for change, refusal in refusals.items()} == codes

    run_async(work)


@pytest.mark.slow
def test_a_place_that_there_is_not_is_refused(runs: Runs) -> None:
    codes = {"30": "NO_CHECKPOINT", **dict.fromkeys(("newest", "-20", "²", ""), "BAD_ARGUMENT")}

    async def work() -> None:
        run = await runs.ended()
        refusals = {start: await runs.refusal(run, start=start) for start in codes}
        assert {start: refusal.code for start, refusal in refusals.items()} == codes

    run_async(work)


@pytest.mark.slow
def test_a_damaged_checkpoint_is_refused_and_another_one_named(runs: Runs) -> None:
    async def work() -> None:
        run = await runs.ended()
        folder = Path(runs.workspace.control.folder(runs.workspace.control.run(run)))
        (folder / "checkpoints" / "step-00000040" / "model.bin").write_bytes(b"damaged")
        refused = await runs.refusal(run, start="40")
        assert refused.code == "CHECKPOINT_DAMAGED"
        assert "60" in refused.fix

    run_async(work)


def test_best_is_refused_where_nothing_was_measured(runs: Runs) -> None:
    async def work() -> None:
        run = await runs.ended('{TRAINMASTER_STEP_S: "0", TRAINMASTER_FAULTS: "unusable@5"}')
        assert (await runs.refusal(run, start="best")).code == "NO_CHECKPOINT"

    run_async(work)


@pytest.mark.slow
def test_a_cleaned_run_is_not_resumed(runs: Runs) -> None:
    async def work() -> None:
        run = await runs.ended()
        await clean(runs.workspace, run)
        assert (await runs.refusal(run, start="scratch")).code == "RUN_ENDED"

    run_async(work)


def test_a_resume_awaits_the_end_of_a_stop(runs: Runs) -> None:
    async def work() -> None:
        run = await runs.launch('{TRAINMASTER_STEP_S: "0.02"}')
        await wait_for_event(runs.workspace, run, until=["checkpoint"], timeout_s=60)
        await stop(runs.workspace, run)
        answer = await resume(runs.workspace, run)
        assert (answer.attempt, answer.state) in [(2, "preparing"), (2, "running")]
        assert f"--cursor {answer.cursor}" in answer.next_step
        assert await runs.wait(run) == "completed"

    run_async(work)


@pytest.mark.slow
def test_only_what_changed_is_sent_and_it_stays_for_the_next_attempt(runs: Runs) -> None:
    async def work() -> None:
        run = await runs.ended(schedule="{warmup_steps: 5}")
        await resume(runs.workspace, run, sets=["steps=80", "optimizer.lr=0.001"])
        assert runs.sent(run) == {"steps": 80, "schedule.steps": 60, "optimizer.lr": 0.001}
        assert await runs.wait(run) == "completed"
        await resume(runs.workspace, run, start="40", sets=["eval.every_steps=5"])
        assert runs.sent(run) == {"eval.every_steps": 5}
        assert await runs.wait(run) == "completed"
        third = runs.attempt_config(run, 3)
        assert (third["steps"], third["optimizer"]["lr"]) == (80, 0.001)
        assert third["attempt"]["resume"] == {"mode": "step", "candidates": [40]}
        assert runs.workspace.control.run(run).config.steps == 80

    run_async(work)


@pytest.mark.slow
def test_a_resume_without_changes_sends_none(runs: Runs) -> None:
    async def work() -> None:
        run = await runs.ended()
        await resume(runs.workspace, run, start="40")
        assert runs.sent(run) == {}
        assert await runs.wait(run) == "completed"

    run_async(work)


@pytest.mark.slow
def test_a_run_from_scratch_begins_at_its_first_step(runs: Runs) -> None:
    async def work() -> None:
        run = await runs.ended()
        await resume(runs.workspace, run, start="scratch")
        assert await runs.wait(run) == "completed"
        status = await get_status(runs.workspace, run, detail=True)
        assert [attempt.started_at_step for attempt in status.attempts or []] == [0, 0]

    run_async(work)


def test_a_run_from_scratch_keeps_what_it_supersedes_and_says_so(runs: Runs) -> None:
    async def work() -> None:
        run = await runs.ended()
        answer = await resume(runs.workspace, run, start="scratch", sets=["steps=30"])
        assert answer.superseded == [60]
        assert await runs.wait(run) == "completed"
        for verify in (False, True):
            listed = await list_checkpoints(runs.workspace, run, verify=verify)
            assert [row.step for row in listed.superseded or ()] == [60]
            assert listed.resume_from == 30
        folder = Path(runs.workspace.control.folder(runs.workspace.control.run(run)))
        assert (folder / "checkpoints" / "step-00000060" / "manifest.json").exists()
        starts = [json.loads(line) for line in (folder / "supervisor.jsonl").open()]
        left = [one["superseded"] for one in starts if one["kind"] == "attempt_starting"]
        assert left == [[], [60]]
        page = (folder / "training_status.md").read_text()
        assert "Superseded checkpoints: 60; kept until" in page

    run_async(work)


@pytest.mark.slow
def test_a_superseded_checkpoint_is_resumed_by_its_step_with_its_own_history(runs: Runs) -> None:
    async def work() -> None:
        run = await runs.ended()
        await resume(runs.workspace, run, start="scratch", sets=["steps=30"])
        assert await runs.wait(run) == "completed"
        answer = await resume(runs.workspace, run, start="60", sets=["steps=70"])
        assert answer.superseded is None
        assert await runs.wait(run) == "completed"
        status = await get_status(runs.workspace, run, detail=True)
        assert [attempt.started_at_step for attempt in status.attempts or []] == [0, 0, 60]
        by_attempt = attempt_points(runs.workspace, run, "loss")
        series = await query_metrics(runs.workspace, [run], keys=["loss"], everything=True)
        expected = [by_attempt[1][step] for step in range(1, 61)]
        expected += [by_attempt[3][step] for step in range(61, 71)]
        assert series.runs[run]["loss"].values == expected

    run_async(work)


def test_the_same_key_resumes_once(runs: Runs) -> None:
    async def work() -> None:
        run = await runs.ended()
        for _ in range(2):
            await resume(runs.workspace, run, sets=["steps=70"], idempotency_key="again")
            assert await runs.wait(run) == "completed"
        status = await get_status(runs.workspace, run)
        assert (status.attempt, status.step) == (2, 70)
        with pytest.raises(UsageError, match="was used before"):
            await resume(runs.workspace, run, sets=["steps=75"], idempotency_key="again")

    run_async(work)


def test_a_stop_may_be_repeated_and_an_ended_run_stays_ended(runs: Runs) -> None:
    async def work() -> None:
        run = await runs.ended()
        for _ in range(2):
            assert (await stop(runs.workspace, run)).state == "completed"
        assert runs.workspace.control.desired(run)[0].generation == 1

    run_async(work)


def test_a_run_that_does_not_exist_is_reported(workspace: Workspace) -> None:
    with pytest.raises(StateError, match="No run is called"):
        run_async(lambda: resume(workspace, "gone"))


@pytest.mark.slow
def test_a_resume_with_nothing_left_to_do_is_refused(runs: Runs) -> None:
    async def work() -> None:
        run = await runs.ended()
        assert (await runs.refusal(run, start="40", sets=["steps=40"])).code == "RUN_ENDED"
        assert (await runs.refusal(run, start="best")).code == "RUN_ENDED"

    run_async(work)


@pytest.mark.slow
def test_a_run_whose_time_is_used_up_asks_for_more(runs: Runs) -> None:
    async def work() -> None:
        slow = '{TRAINMASTER_STEP_S: "0.05"}'
        run = await runs.ended(slow, steps="1000", limits="{max_runtime: 1s}")
        status = await get_status(runs.workspace, run)
        assert "max_runtime" in status.next_step
        refused = await runs.refusal(run)
        assert (refused.code, refused.field) == ("RUN_ENDED", "limits.max_runtime")
        sets = ["limits.max_runtime=1h", f"steps={status.step + 5}"]
        await resume(runs.workspace, run, sets=sets)
        assert await runs.wait(run) == "completed"

    run_async(work)


def test_of_two_requests_for_one_generation_only_the_first_is_recorded(runs: Runs) -> None:
    async def work() -> None:
        run = await runs.ended()
        control = runs.workspace.control
        desired = Desired(DesiredState.RUNNING, control.desired(run)[0].generation + 1)
        assert control.request(run, desired, 1.0)
        assert not control.request(run, desired, 2.0)

    run_async(work)


@pytest.mark.slow
def test_a_cleaned_run_reports_what_is_left_and_can_be_cleaned_again(runs: Runs) -> None:
    async def work() -> None:
        run = await runs.ended()
        await clean(runs.workspace, run, keep=["best"])
        for verify in (False, True):
            left = await list_checkpoints(runs.workspace, run, verify=verify)
            assert [row.step for row in left.checkpoints] == [60]
            assert left.resume_from is None
        assert "resume" not in (await get_status(runs.workspace, run)).next_step
        again = await clean(runs.workspace, run)
        assert again.removed == ["checkpoints/step-00000060"]
        assert (await clean(runs.workspace, run)).removed == []

    run_async(work)


@pytest.mark.slow
def test_a_field_that_the_runs_version_lacks_is_refused_with_its_name(runs: Runs) -> None:
    async def work() -> None:
        run = await runs.ended()
        with sqlite3.connect(runs.workspace.home.control_db) as database:
            [text] = database.execute("SELECT config FROM runs WHERE run_id = ?", (run,)).fetchone()
            document = json.loads(text)
            del document["compute"]["deterministic"]
            older = json.dumps(document)
            database.execute("UPDATE runs SET config = ? WHERE run_id = ?", (older, run))
        refused = await runs.refusal(run, sets=["steps=90", "compute.deterministic=true"])
        assert refused.code == "INVALID_VALUE"
        assert "without this field (`compute.deterministic`" in refused.message

    run_async(work)
