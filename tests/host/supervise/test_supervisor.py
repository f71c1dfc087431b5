from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from support.core.journal_records import EventBody, kept, metric, started
from support.host.scripted_processes import Box, Life, ScriptedProcesses

from trainer_runtime.core.policy.endings import Exit
from trainer_runtime.core.protocol.lines import encode
from trainer_runtime.core.protocol.states import PlacementState
from trainer_runtime.host.supervise.supervisor import Supervisor
from trainer_runtime.host.watch.telemetry import Telemetry

COMPLETED: tuple[EventBody, ...] = (
    started(),
    metric(1),
    metric(100),
    *kept(100),
    ("completed", {"step": 100, "final": "final"}),
)
UNTIL_SIGNALLED = Life((started(), metric(1), metric(40)), end=None)
KILLED = Exit(None, 9)


@pytest.fixture
def box(tmp_path: Path) -> Box:
    box = Box(tmp_path / "runs" / "small-abc234", {1: Life(COMPLETED)})
    box.set_up()
    return box


def with_lives(box: Box, *lives: Life, **changes: Any) -> Box:
    box.lives = dict(enumerate(lives, 1))
    box.set_up(**changes)
    return box


def reasons(box: Box) -> list[str | None]:
    return [attempt.reason for attempt in box.record().attempts]


def test_a_run_completes_and_its_page_state_and_index_say_so(box: Box) -> None:
    record = box.to_the_end()
    assert (record.state, record.closed) == (PlacementState.COMPLETED, True)
    assert (box.started, reasons(box)) == ([1], ["completed"])
    assert "**completed**" in box.run.status_page.read_text()
    assert json.loads(box.run.state.read_bytes())["state"] == "completed"
    assert json.loads(box.run.checkpoint_index.read_bytes())["resume_from"] == 100
    assert box.run.current_log.readlink() == Path("../attempts/1/train.log")


def test_a_preparation_that_finds_the_data_unusable_fails_with_its_last_words(box: Box) -> None:
    words = "reading\nprepare: \x1b[31m/corpus: it is empty\x1b[0m\u202e\n"
    with_lives(box, Life(prepared=77, setup_log=words))
    record = box.to_the_end()
    assert (record.state, record.reason) == (PlacementState.FAILED, "unusable")
    assert record.attempts[0].last_words == "prepare: /corpus: it is empty"
    assert box.started == []


def test_a_preparation_that_was_killed_is_tried_again(box: Box) -> None:
    with_lives(box, Life(prepared=-9), Life(COMPLETED))
    assert box.to_the_end().state is PlacementState.COMPLETED
    assert reasons(box) == ["killed", "completed"]
    assert box.record().attempts[0].signal == 9


def test_a_crash_before_the_first_step_is_not_tried_again(box: Box) -> None:
    with_lives(box, Life((started(),), Exit(1, None)))
    record = box.to_the_end()
    assert (record.state, record.reason) == (PlacementState.FAILED, "failed_before_first_step")
    assert box.started == [1]


def test_a_killed_trainer_resumes_from_its_newest_checkpoint_at_once(box: Box) -> None:
    first = Life((started(), metric(1), *kept(20), *kept(40), metric(47)), KILLED)
    with_lives(box, first, Life(COMPLETED))
    assert box.to_the_end().state is PlacementState.COMPLETED
    assert box.attempt_config(2)["attempt"] == {
        "number": 2,
        "resume": {"mode": "latest", "candidates": [40, 20]},
        "reason": "killed",
    }
    first_end, second_start = box.record().attempts
    assert second_start.starting_t - (first_end.ended_t or 0.0) <= 2.0


def test_restarts_wait_ever_longer_and_end(box: Box) -> None:
    crash = Life((started(), metric(1)), Exit(1, None))
    with_lives(box, *[crash] * 9)
    record = box.to_the_end()
    assert (record.state, record.reason) == (PlacementState.FAILED, "max_restarts")
    assert reasons(box) == ["crashed"] * 4
    attempts = record.attempts
    waits = [b.starting_t - (a.ended_t or 0) for a, b in pairwise(attempts)]
    assert [round(wait) for wait in waits] == pytest.approx([0, 5, 10], abs=2)


def test_after_a_loss_that_is_no_number_the_data_up_to_it_is_left_out(box: Box) -> None:
    warning = ("warning", {"code": "nan_loss", "step": 47, "message": "NaN"})
    guarded = Life((started(), metric(1), *kept(40), metric(47), warning), Exit(76, None))
    with_lives(box, guarded, Life(COMPLETED))
    assert box.to_the_end().state is PlacementState.COMPLETED
    assert box.attempt_config(2)["data"]["skip"] == [{"at_step": 40, "sequences": 56}]


@pytest.mark.parametrize("seen", ["running", "attempt_starting", "prepared"])
def test_a_stop_ends_the_run_wherever_it_stands(box: Box, seen: str) -> None:
    with_lives(box, UNTIL_SIGNALLED)
    supervisor = box.supervisor()
    box.tick(supervisor, seen)
    box.ask("stopped", 2)
    record = box.to_the_end(supervisor)
    assert (record.state, record.reason, record.generation) == (
        PlacementState.STOPPED,
        "stopped",
        2,
    )
    assert reasons(box) == ["stopped"]


def test_a_stop_during_a_preparation_that_never_ends_ends_it(box: Box) -> None:
    with_lives(box, Life(prepared=None))
    supervisor = box.supervisor()
    box.tick(supervisor, "preparing")
    box.ask("stopped", 2)
    assert box.to_the_end(supervisor).state is PlacementState.STOPPED
    assert box.started == []
    assert ("terminate", 1) in box.requests and ("kill", 1) in box.requests


def test_a_stop_before_anything_began_starts_nothing(box: Box) -> None:
    box.ask("stopped", 2)
    assert box.to_the_end().state is PlacementState.STOPPED
    assert (box.started, reasons(box)) == ([], [])


def test_a_stop_while_a_restart_waits_starts_nothing_more(box: Box) -> None:
    with_lives(box, *[Life((started(), metric(1)), Exit(1, None))] * 3)
    supervisor = box.supervisor()
    for _ in range(60):
        if len(box.record().attempts) == 2 and box.record().restart_due_t is not None:
            break
        supervisor.tick()
        box.now += 1.0
    box.ask("stopped", 2)
    assert box.to_the_end(supervisor).state is PlacementState.STOPPED
    assert box.started == [1, 2]


def test_a_trainer_that_does_not_hear_sigterm_is_killed_after_the_grace(box: Box) -> None:
    with_lives(box, Life((started(), metric(1)), end=None, on_sigterm=None))
    supervisor = box.supervisor()
    box.tick(supervisor, "running")
    box.ask("stopped", 2, grace_s=30)
    asked = box.now
    record = box.to_the_end(supervisor)
    assert (record.state, record.attempts[0].signal) == (PlacementState.STOPPED, 9)
    assert (
        record.attempts[0].detail
        == "ended by signal 9 (SIGKILL): it did not end when it was asked to"
    )
    assert 30 <= (record.attempts[0].ended_t or 0) - asked <= 34


def test_a_trainer_that_appears_only_after_the_stop_is_signalled_too(box: Box) -> None:
    with_lives(box, UNTIL_SIGNALLED)
    supervisor = box.supervisor()
    box.tick(supervisor, "prepared")
    supervisor.tick()
    box.can_hear = False
    box.ask("stopped", 2)
    supervisor.tick()
    supervisor.tick()
    box.can_hear = True
    record = box.to_the_end(supervisor)
    assert record.state is PlacementState.STOPPED
    assert (record.attempts[0].ended_t or 0) - (record.attempts[0].terminated_t or 0) < 10


def test_the_time_limit_counts_all_attempts_and_ends_the_run(box: Box) -> None:
    crash = Life((started(), metric(1)), Exit(1, None))
    with_lives(box, crash, UNTIL_SIGNALLED, limits={"max_runtime_s": 60.0})
    record = box.to_the_end()
    assert (record.state, record.reason) == (PlacementState.STOPPED, "time_limit")
    assert reasons(box) == ["crashed", "time_limit"]
    spent = sum(attempt.seconds(box.now) for attempt in record.attempts)
    assert 60 <= spent <= 64


def test_a_resume_may_raise_the_time_limit(box: Box) -> None:
    with_lives(box, UNTIL_SIGNALLED, Life(COMPLETED), limits={"max_runtime_s": 60.0})
    assert box.to_the_end().reason == "time_limit"
    box.ask("running", 2, why="resume", set={"limits.max_runtime_s": 600.0})
    assert box.to_the_end().state is PlacementState.COMPLETED
    assert reasons(box) == ["time_limit", "completed"]


def test_a_resume_may_allow_more_restarts_and_more_steps(box: Box) -> None:
    crash = Life((started(), metric(1)), Exit(1, None))
    with_lives(box, crash, crash, Life(COMPLETED), recovery={"max_restarts": 0})
    assert box.to_the_end().reason == "max_restarts"
    sets = {"recovery.max_restarts": 1, "steps": 200}
    box.ask("running", 2, why="resume", set=sets)
    assert box.to_the_end().state is PlacementState.COMPLETED
    assert reasons(box) == ["crashed", "crashed", "completed"]
    assert "of 200" in box.run.status_page.read_text()


def test_a_resume_leaves_out_the_data_that_was_asked_for(box: Box) -> None:
    first = Life((started(), metric(1), *kept(20)), Exit(1, None))
    again = Life((started(20), metric(100), *kept(100), ("completed", {"step": 100})))
    with_lives(box, first, again, recovery={"max_restarts": 0})
    box.to_the_end()
    skip = {"at_step": 20, "sequences": 80}
    box.ask("running", 2, why="patch:1a2b3c4d:rewind:loss_spike", mode="step", step=20, skip=skip)
    assert box.to_the_end().state is PlacementState.COMPLETED
    assert box.attempt_config(2)["data"]["skip"] == [skip]


def test_a_resume_starts_from_what_was_asked_with_the_last_configuration(box: Box) -> None:
    first = Life((started(), metric(1), *kept(20, 2.0), *kept(40, 3.0)), Exit(1, None))
    again = (started(20), metric(21), *kept(60))
    third = (started(), metric(1), metric(100), *kept(100), ("completed", {"step": 100}))
    with_lives(box, first, Life(again, Exit(1, None)), Life(third), recovery={"max_restarts": 0})
    box.to_the_end()
    box.ask("running", 2, why="resume", mode="best", set={"optimizer.lr": 0.5})
    box.to_the_end()
    resumed = box.attempt_config(2)
    assert resumed["attempt"]["resume"] == {"mode": "step", "candidates": [20]}
    assert resumed["optimizer"]["lr"] == 0.5
    box.ask("running", 3, why="resume")
    assert box.to_the_end().state is PlacementState.COMPLETED
    third_config = box.attempt_config(3)
    assert third_config["attempt"]["resume"] == {"mode": "latest", "candidates": [60, 20]}
    assert third_config["optimizer"]["lr"] == 0.5


def test_a_resume_from_scratch_tries_no_checkpoint(box: Box) -> None:
    with_lives(box, Life((started(), metric(1), *kept(20)), Exit(77, None)), Life(COMPLETED))
    box.to_the_end()
    box.ask("running", 2, why="resume", mode="scratch")
    box.to_the_end()
    resume = box.attempt_config(2)["attempt"]["resume"]
    assert resume == {"mode": "scratch", "candidates": []}


def test_an_unknown_change_is_reported_and_left_out(box: Box) -> None:
    with_lives(box, Life((started(),), Exit(77, None)), Life(COMPLETED))
    box.to_the_end()
    box.ask("running", 2, why="resume", set={"optimizer.momentum": 0.5})
    assert box.to_the_end().state is PlacementState.COMPLETED
    assert "momentum" not in box.attempt_config(2)["optimizer"]


def test_a_stop_of_an_ended_run_is_answered_and_changes_nothing(box: Box) -> None:
    box.to_the_end()
    box.ask("stopped", 2)
    record = box.to_the_end()
    assert (record.state, record.generation) == (PlacementState.COMPLETED, 2)
    assert record.closed


def test_a_supervisor_of_an_ended_run_does_nothing(box: Box) -> None:
    box.to_the_end()
    assert box.supervisor().tick()
    assert box.started == [1]


def test_a_request_made_while_a_supervisor_ends_is_seen_once_its_lock_is_free(box: Box) -> None:
    supervisor = box.supervisor()
    box.to_the_end(supervisor)
    assert not supervisor.has_newer_request()
    box.ask("running", 2, why="resume")
    assert supervisor.has_newer_request()
    box.run.desired.unlink()
    assert not supervisor.has_newer_request()


def test_a_run_that_completed_before_its_stop_was_seen_has_completed(box: Box) -> None:
    supervisor = box.supervisor()
    box.tick(supervisor, "attempt_ended")
    supervisor.close()
    whole = box.run.journal.read_bytes().splitlines(keepends=True)
    ended = next(n for n, line in enumerate(whole) if b'"attempt_ended"' in line)
    box.run.journal.write_bytes(b"".join(whole[: ended + 1]))
    box.ask("stopped", 2)
    assert box.to_the_end().state is PlacementState.COMPLETED


def test_a_heartbeat_with_the_machines_figures_comes_every_ten_seconds(box: Box) -> None:
    with_lives(box, Life(prepared=None))
    supervisor = box.supervisor()
    for _ in range(60):
        supervisor.tick()
        box.now += 1.0
    samples = [event for event in box.journal() if event["kind"] == "sample"]
    assert len(samples) == 6
    assert samples[-1]["values"]["disk_free_gib"] > 0


def test_a_line_of_events_that_is_none_does_not_stop_the_supervisor(box: Box) -> None:
    with_lives(box, UNTIL_SIGNALLED)
    supervisor = box.supervisor()
    box.tick(supervisor, "running")
    with box.run.attempt(1).events.open("ab") as file:
        file.write(b'{"v":1,"seq":9,"t":1.0,"kind":"metric"}\n{"torn\n[]\n')
    box.ask("stopped", 2)
    assert box.to_the_end(supervisor).attempts[0].last_step == 40


def _line(kind: str, **fields: Any) -> bytes:
    return encode(0, 1_000.0, kind, fields)


ODD_IN_JOURNAL = (
    _line("attempt_starting"),
    _line("attempt_starting", attempt=[1], generation=None),
    _line("state", state="unheard of"),
    _line("restart_planned"),
    _line("finding", attempt=1, finding={"id": "0a0a0a0a"}),
    _line("finding", attempt=1, finding=[]),
    _line("finding_closed"),
    _line("findings_muted", attempt={}),
    _line("sample", values={"disk_free_gib": [1]}),
)
ODD_OF_TRAINER = (
    _line("started", step="first"),
    _line("checkpoint", step=1, action="saved", size_bytes="large"),
    _line("eval", step=1, values={"val_loss": {}}),
    _line("decision", what="skip_checkpoint", value="newest"),
    _line("warning", code=None, step=[]),
)


def test_lines_of_another_version_do_not_keep_a_supervisor_from_starting(box: Box) -> None:
    with_lives(box, UNTIL_SIGNALLED)
    supervisor = box.supervisor()
    box.tick(supervisor, "running")
    supervisor.close()
    with box.run.journal.open("ab") as journal, box.run.attempt(1).events.open("ab") as events:
        journal.writelines(ODD_IN_JOURNAL)
        events.writelines(ODD_OF_TRAINER)
    odd = box.run.checkpoints / "step-00000007"
    odd.mkdir(parents=True)
    (odd / "manifest.json").write_text('{"step": 7, "attempt": "first"}')
    box.ends[1] = KILLED
    box.lives = {**box.lives, 2: Life(COMPLETED)}
    assert box.to_the_end().state is PlacementState.COMPLETED
    assert reasons(box) == ["killed", "completed"]


def test_a_supervisor_that_reads_a_long_history_beats_meanwhile(box: Box) -> None:
    with_lives(box, Life((started(), *(metric(step) for step in range(1, 90))), end=None))
    first = box.supervisor()
    box.tick(first, "running")
    first.close()
    lived = len(box.journal())

    def clock() -> float:
        box.now += 1.0
        return box.now

    processes = ScriptedProcesses(box)
    again = Supervisor(box.run, processes, clock, Telemetry(box.root), window=False)
    written = [event["kind"] for event in box.journal()][lived:]
    assert written[-1] == "started"
    assert written[:-1] == ["sample"] * len(written[:-1])
    assert 5 <= len(written) <= 15
    again.close()
    assert box.record().attempts[0].number == 1
