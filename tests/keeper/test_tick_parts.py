"""The parts of a tick: what fails in one is recorded, reported, and stops nothing else."""

from __future__ import annotations

import json
import os

import pytest
from support.alerts.webhook_receiver import Receiver
from support.runs.running_run import CommandLine, run_async

from trainer_runtime.core.files.durable import try_lock
from trainmaster.answers.keeper import TickAnswer
from trainmaster.cli import run
from trainmaster.keeper.parts import tick_runs
from trainmaster.keeper.tick import fire_tick_failures, has_failed, run_part, tick
from trainmaster.sync.keeper_state import read_last_tick
from trainmaster.sync.workspace import Workspace


def test_a_part_that_does_not_end_is_killed_and_named(workspace: Workspace) -> None:
    answer = run_async(lambda: run_part(workspace.home, "runs", 0.05))
    assert answer.failed == {"runs": "TIMEOUT: it did not end within 0.05 s and was killed"}


def test_a_tick_with_a_failure_ends_with_1_and_names_it(
    workspace: Workspace, capsys: pytest.CaptureFixture[str]
) -> None:
    workspace.home.metrics_db.unlink(missing_ok=True)
    workspace.home.metrics_db.mkdir()
    assert run(["tick", "--json"]) == 1
    failed = json.loads(capsys.readouterr().out)["failed"]
    assert failed["runs"].startswith("ROOT_NOT_WRITABLE")
    workspace.home.metrics_db.rmdir()
    assert run(["tick"]) == 0


@pytest.mark.parametrize(
    ("failed", "counts"),
    [
        (None, False),
        ({"gpt-abc234": "HOST_UNREACHABLE: box does not answer"}, False),
        ({"runpod": "CLOUD_UNREACHABLE: no answer", "gpt": "LINK_LOST: …"}, False),
        ({"gpt": "SLURM_UNREACHABLE: the controller of a login node that answers"}, False),
        ({"gpt": "HOST_UNREACHABLE: …", "other": "AUTH_FAILED: the key"}, True),
        ({"runs": "TIMEOUT: it did not end within 1000 s and was killed"}, True),
        ({"runs": "INTERNAL: its process was ended by SIGSEGV"}, True),
        ({"alerts": "nothing that is known"}, True),
    ],
)
def test_a_host_that_gives_no_answer_is_no_failure_of_the_tick(
    failed: dict[str, str] | None, counts: bool
) -> None:
    assert has_failed(TickAnswer(runs=[], failed=failed)) is counts


def test_two_processes_never_do_the_same_part(workspace: Workspace) -> None:
    lock = try_lock(workspace.home.keeper_part_lock("runs"))
    assert lock is not None
    try:
        assert run_async(lambda: tick_runs(workspace)).runs == []
    finally:
        os.close(lock)


@pytest.mark.slow
def test_a_failed_tick_is_reported_by_status_doctor_and_an_alert(
    workspace: Workspace, command: CommandLine, receiver: Receiver
) -> None:
    workspace.home.settings.write_text(
        json.dumps({"destinations": {"ops": {"kind": "webhook", "url": receiver.url}}})
    )
    workspace.home.settings.chmod(0o600)
    workspace.home.metrics_db.mkdir()
    for _ in range(2):
        answer = run_async(lambda: tick(workspace, every="5m"))
        assert answer.failed is not None and answer.failed["runs"].startswith("ROOT_NOT_WRITABLE")
    ticked = read_last_tick(workspace.home)
    assert ticked is not None and ticked.failed == answer.failed
    workspace.home.metrics_db.rmdir()
    state = command("keeper", "status")
    assert (state["last_tick"], list(state["failed"])) == ("failed", ["runs"])
    assert [body["alert"] for body in receiver.taken] == ["keeper-failed"]
    assert "runs (ROOT_NOT_WRITABLE)" in receiver.taken[0]["text"]


def test_failures_are_reported_again_only_after_they_were_over(workspace: Workspace) -> None:
    workspace.home.settings.write_text('destinations: {ops: {kind: command, command: ["true"]}}')
    workspace.home.settings.chmod(0o600)
    for now, failed in enumerate(
        (
            {"a": "INTERNAL: x"},
            {"a": "INTERNAL: y"},
            {"b": "HOST_UNREACHABLE: z"},
            {"a": "INTERNAL: x"},
        )
    ):
        fire_tick_failures(workspace, failed, float(now))
    texts = [row.message.text for row in workspace.control.alerts.due(10.0)]
    assert len(texts) == 2 and all("a (INTERNAL)" in text for text in texts)


def test_a_part_works_in_the_home_that_it_is_given(workspace: Workspace) -> None:
    answer = run_async(lambda: run_part(workspace.home, "runs", 60.0))
    assert (answer.runs, answer.failed) == ([], None)
