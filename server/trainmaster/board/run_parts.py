"""The parts of a run's page that no command shows as they are: settings, checkpoints, samples."""

from __future__ import annotations

from collections.abc import Iterable

from trainmaster.answers.board import BoardCheckpoint, BoardSample, BoardSetting
from trainmaster.answers.runs import CheckpointRow
from trainmaster.metrics.run_series import RunSeries, run_series
from trainmaster.runs.diagnosis.attempt_changes import is_of, named_in_spec
from trainmaster.runs.lists.list_checkpoints import checkpoints_of
from trainmaster.runs.metrics.compared_settings import settings_of
from trainmaster.runs.status.newest_samples import of_training
from trainmaster.sync.run_view import RunView
from trainmaster.sync.workspace import Workspace

_MOST_SAMPLES = 20


def board_settings(workspace: Workspace, view: RunView) -> list[BoardSetting]:
    """Every value of the newest configuration, with those that the spec names."""
    names = list(named_in_spec(view.run.spec))
    return [
        BoardSetting(
            path=path, value=value, chosen=any(is_of(path, name) for name in names) or None
        )
        for path, value in settings_of(workspace, view).items()
    ]


def board_checkpoints(
    workspace: Workspace, view: RunView
) -> tuple[list[BoardCheckpoint], int | None]:
    """The existing checkpoints, the newest first, and the step that a resume would take; none of
    a cleaned run."""
    if view.run.cleaned:
        return [], None
    answer, losses = checkpoints_of(view), run_series(workspace, view, "loss")
    rows = [*_rows(answer.checkpoints, losses), *_rows(answer.superseded or (), None)]
    return sorted(rows, key=lambda row: row.step, reverse=True), answer.resume_from


def _rows(rows: Iterable[CheckpointRow], losses: RunSeries | None) -> Iterable[BoardCheckpoint]:
    """`losses` None: the rows are superseded, and so is what was measured at their steps."""
    for row in rows:
        point = None if losses is None else losses.until(row.step)
        loss = None if point is None else point[2]
        superseded = True if losses is None else None
        yield BoardCheckpoint(**vars(row), loss=loss, superseded=superseded)


def board_samples(workspace: Workspace, view: RunView) -> list[BoardSample]:
    """The texts that the model wrote, those of the newest steps first, without superseded ones."""
    samples = [
        BoardSample(
            step=sample.step or 0,
            attempt=attempt,
            untrusted_prompt=sample.untrusted_prompt or "",
            untrusted_text=sample.untrusted_text,
            untrusted_detail=sample.untrusted_detail,
        )
        for attempt, sample in of_training(workspace, view)
    ]
    return sorted(samples, key=lambda sample: -sample.step)[:_MOST_SAMPLES]
