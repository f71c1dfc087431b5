from __future__ import annotations

import pytest
from support.core.journal_records import attempt_starting, lines, metric, started

from trainer_runtime.core.protocol.desired import Desired
from trainer_runtime.core.protocol.states import DesiredState
from trainmaster.errors.errors import StateError
from trainmaster.metrics.run_series import attempt_points, run_points
from trainmaster.store.run import Run
from trainmaster.sync.ingest import ingest_placement
from trainmaster.sync.run_view import load_view
from trainmaster.sync.workspace import Workspace

RUN = "small-abc234"


@pytest.fixture
def two_attempts(workspace: Workspace) -> Workspace:
    """Steps 1 to 6, then a resume from 4 that comes to 5, and telemetry all the while."""
    run = Run(RUN, "small", 1.0, "debug", "", {"steps": 10}, {}, {}, closed=True)
    workspace.control.add_run(run, Desired(DesiredState.RUNNING, 1), "in_process", "/x", None)
    mirror = workspace.mirror.of(RUN, 1)
    first = (started(0), *(metric(step, 10.0 + step) for step in range(1, 7)))
    second = (started(4), metric(5, 25.0))
    sample = ("sample", {"values": {"cpu_util": 50.0}})
    mirror.append("attempts/1/events.jsonl", b"".join(lines(first)))
    mirror.append("attempts/2/events.jsonl", b"".join(lines(second)))
    mirror.append("attempts/3/events.jsonl", b"")
    mirror.append("supervisor.jsonl", b"".join(lines((attempt_starting(1), sample, sample))))
    ingest_placement(workspace.metrics, mirror, RUN, 1)
    return workspace


def points(workspace: Workspace, key: str) -> list[tuple[int, float]]:
    return run_points(workspace, load_view(workspace, RUN), key)


def test_a_run_has_one_value_a_step_and_none_that_a_resume_took_back(
    two_attempts: Workspace,
) -> None:
    assert points(two_attempts, "loss") == [(1, 11), (2, 12), (3, 13), (4, 14), (5, 25)]


def test_every_attempt_keeps_what_it_measured(two_attempts: Workspace) -> None:
    found = attempt_points(two_attempts, "small", "loss")
    assert found == {1: {step: 10.0 + step for step in range(1, 7)}, 2: {5: 25.0}}


def test_telemetry_is_taken_back_by_no_resume(two_attempts: Workspace) -> None:
    assert [value for _, value in points(two_attempts, "cpu_util")] == [50.0, 50.0]


def test_a_key_that_the_run_lacks_has_no_points(two_attempts: Workspace) -> None:
    assert points(two_attempts, "accuracy") == []


def test_a_run_that_does_not_exist_is_reported(two_attempts: Workspace) -> None:
    with pytest.raises(StateError):
        attempt_points(two_attempts, "gone", "loss")
