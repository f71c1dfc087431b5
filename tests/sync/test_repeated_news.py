"""What trainer and host both report is news once, and again when it comes back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from support.core.journal_records import FIRST_T, EventBody, attempt_starting, events
from support.host.scripted_processes import CONFIG
from support.runs.planted_runs import finding

from trainer_runtime.core.protocol.desired import Desired
from trainer_runtime.core.protocol.journal import Record
from trainer_runtime.core.protocol.lines import Event
from trainer_runtime.core.protocol.progress import Progress
from trainer_runtime.core.protocol.states import DesiredState
from trainmaster.runs.diagnosis.diagnose_run import found_of
from trainmaster.runs.events.news import news_of
from trainmaster.store.metrics_rows import StoredEvent
from trainmaster.store.run import Run
from trainmaster.sync.run_view import RunView

_CLOSED = ("finding_closed", {"attempt": 1, "id": "0a0a0a0a"})
_START = attempt_starting(1)


def _warning(step: int) -> EventBody:
    return "warning", {"code": "nan_grad", "step": step, "message": "no number"}


def _found(id: str, step: int) -> EventBody:
    return finding(id, "nan_grad", step=step)


def _seen(journal: Sequence[Event], trainer: Sequence[Event]) -> tuple[RunView, list[StoredEvent]]:
    run = Run("r-abcdef", "r", 1.0, "local", "", dict(CONFIG), {}, {})
    record, progress = Record(), Progress(1)
    for event in journal:
        record.apply(event)
    for event in trainer:
        progress.apply(event)
    now = max(event.t for event in (*journal, *trainer))
    view = RunView(run, Desired(DesiredState.RUNNING, 1), record, [progress], now)
    stored = [
        StoredEvent(attempt, event)
        for attempt, rows in ((0, journal), (1, trainer))
        for event in rows
    ]
    return view, sorted(stored, key=lambda one: one.event.t)


@pytest.mark.parametrize(
    ("journal", "trainer", "steps"),
    [
        ([_START, _found("0a0a0a0a", 40)], [(0.5, _warning(41))], [41]),
        ([_START, _found("0a0a0a0a", 40)], [(9.0, _warning(41))], [40]),
        (
            [_START, _found("0a0a0a0a", 10), _CLOSED, _found("0b0b0b0b", 500)],
            [(2.5, _warning(500))],
            [10, 500],
        ),
        (
            [_START, _found("0a0a0a0a", 10), _CLOSED, _found("0b0b0b0b", 500)],
            [(0.5, _warning(10))],
            [10, 500],
        ),
    ],
    ids=["warned first", "found first", "warned of the second time", "warned of the first time"],
)
def test_what_both_report_is_news_once_and_each_time_that_it_comes(
    journal: list[EventBody], trainer: list[tuple[float, EventBody]], steps: list[int]
) -> None:
    of_trainer = [event for at, row in trainer for event in events([row], first_t=FIRST_T + at)]
    view, stored = _seen(events(journal), of_trainer)
    changes = [change.step for change in news_of(stored, view) if change.event == "finding"]
    assert changes == steps


def test_a_second_time_that_the_host_could_not_detect_is_still_found() -> None:
    journal = events([_START, _found("0a0a0a0a", 10), _CLOSED])
    view, _ = _seen(journal, events([_warning(500)], first_t=FIRST_T + 9))
    assert [(one.finding.step, one.over) for one in found_of(view)] == [(500, False), (10, True)]


def test_an_evaluation_is_shown_with_its_loss_and_what_checkpoints_are_chosen_by() -> None:
    values = {"val_loss": 0.25, "val_rewards/margins": 1.5, "val_rewards/accuracies": 0.75}
    view, stored = _seen([], events([("eval", {"step": 4, "values": values})]))
    assert [change.detail for change in news_of(stored, view)] == ["val_loss 0.25"]
    chosen_by = {**CONFIG, "checkpoint": {"metric": "val_rewards/margins"}}
    view = replace(view, run=replace(view.run, document=chosen_by))
    changes = [change.detail for change in news_of(stored, view)]
    assert changes == ["val_loss 0.25, val_rewards/margins 1.5"]
