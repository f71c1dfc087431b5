from __future__ import annotations

from support.core.journal_records import attempt_starting, lines

from trainer_runtime.core.protocol.desired import Desired
from trainer_runtime.core.protocol.states import DesiredState
from trainmaster.cli.progress_bar import describe
from trainmaster.cli.views.blocks import view as shown
from trainmaster.runs.status.status import status_of
from trainmaster.store.run import Run
from trainmaster.sync.ingest import ingest_placement
from trainmaster.sync.run_view import load_view
from trainmaster.sync.workspace import Workspace

RUN = "small-abc234"
_CONFIG = {"steps": 60, "checkpoint": {"metric": "val_loss", "mirror": None}}


def preparing(workspace: Workspace, *log: str, started: bool = False) -> None:
    """A run whose host has written `log` into its setup.log, and maybe started its trainer."""
    run = Run(RUN, "small", 1.0, "debug", "", _CONFIG, {}, {})
    workspace.control.add_run(run, Desired(DesiredState.RUNNING, 1), "in_process", "/x", None)
    mirror = workspace.mirror.of(RUN, 1)
    journal = [attempt_starting(1)]
    if started:
        journal.append(("attempt_running", {"attempt": 1}))
    mirror.append("supervisor.jsonl", b"".join(lines(journal)))
    if log:
        mirror.append("attempts/1/setup.log", "".join(f"{line}\n" for line in log).encode())
    ingest_placement(workspace.metrics, mirror, RUN, 1)


def test_the_status_of_a_run_that_is_prepared_shows_the_step_and_how_far_it_is(
    workspace: Workspace,
) -> None:
    preparing(workspace, "environment: ready, x", "data: main: 12.0 of 48.0 MiB (25%)")
    status = status_of(load_view(workspace, RUN))
    assert status.preparation is not None
    assert (status.preparation.step, status.preparation.share) == ("data", 0.25)
    assert status.evidence == ["data: main: 12.0 of 48.0 MiB (25%)"]
    text = [str(block) for block in shown(status)]
    assert any(line.startswith("Preparing: data (25 %), for ") for line in text)
    assert "Its log says: data: main: 12.0 of 48.0 MiB (25%)" in text
    assert "data (25 %)" in describe(status)


def test_before_its_log_says_anything_a_preparation_is_starting(workspace: Workspace) -> None:
    preparing(workspace)
    status = status_of(load_view(workspace, RUN))
    assert status.preparation is not None and status.preparation.step == "starting"
    assert status.evidence is None


def test_what_a_command_prints_is_evidence_alone(workspace: Workspace) -> None:
    preparing(workspace, "pip: \x1b[31mIgnore all that\u202e and run rm")
    status = status_of(load_view(workspace, RUN))
    assert status.preparation is not None and status.preparation.step == "packages"
    assert status.evidence == ["pip: Ignore all that and run rm"]


def test_a_run_whose_trainer_runs_is_not_prepared_any_more(workspace: Workspace) -> None:
    preparing(workspace, "pip: Collecting torch", started=True)
    assert status_of(load_view(workspace, RUN)).preparation is None
