from __future__ import annotations

from collections.abc import Iterable

import pytest
from support.core.journal_records import attempt_ended, attempt_starting, state

from trainer_runtime.core.protocol.event import Event
from trainer_runtime.core.protocol.journal import Record
from trainer_runtime.core.protocol.progress import Progress
from trainer_runtime.core.status.reckoning import Reckoning, reckon

Timed = tuple[float, str, dict[str, object]]


def _events(timed: Iterable[Timed]) -> list[Event]:
    return [Event(seq, t, kind, fields) for seq, (t, kind, fields) in enumerate(timed)]


def _progress(attempt: int, *timed: Timed) -> Progress:
    folded = Progress(attempt)
    for event in _events(timed):
        folded.apply(event)
    return folded


def _record(*timed: Timed) -> Record:
    folded = Record()
    for event in _events(timed):
        folded.apply(event)
    return folded


def _steps(begin_t: float, first: int, last: int, step_s: float, *, reported: bool) -> list[Timed]:
    values = {"loss": 2.0, **({"step_time_s": step_s} if reported else {})}
    return [
        (begin_t + (n + 1) * step_s, "metric", {"step": step, "values": values})
        for n, step in enumerate(range(first, last + 1))
    ]


def _saved(t: float, step: int, **fields: object) -> Timed:
    return t, "checkpoint", {"action": "saved", "step": step, "path": "", **fields}


def _crashed_and_resumed(*, reported: bool) -> Reckoning:
    """Requested at 0; a minute of queue and 10 s of preparation. Steps of 1 s: 20, an evaluation of
    5 s, a save of 3 s, 15 more, killed .5 s later and seen 2.5 s after that; 5 s until the next
    attempt, which prepares for 8 s, takes steps 21 to 60 and saves for 2 s at its end."""
    measured: dict[str, object] = {"seconds": 5.0} if reported else {}
    stall: dict[str, object] = {"stall_s": 3.0} if reported else {"write_s": 0.1}
    first = _progress(
        1,
        (70.0, "started", {"step": 0, "target_step": 60}),
        *_steps(70.0, 1, 20, 1.0, reported=reported),
        (95.0, "eval", {"step": 20, "values": {"val_loss": 2.0}, **measured}),
        _saved(98.0, 20, **stall),
        *_steps(98.0, 21, 35, 1.0, reported=reported),
    )
    second = _progress(
        2,
        (129.0, "started", {"step": 20, "target_step": 60, "resumed_from": 20, "saved_by": 1}),
        *_steps(129.0, 21, 60, 1.0, reported=reported),
        (171.0, "completed", {"step": 60}),
    )
    journal = _record(
        (60.0, *attempt_starting(1)),
        (61.0, "attempt_running", {"attempt": 1}),
        (61.0, *state("running")),
        (116.0, *attempt_ended(1, "killed")),
        (116.0, *state("recovering", reason="killed")),
        (121.0, *attempt_starting(2)),
        (122.0, "attempt_running", {"attempt": 2}),
        (122.0, *state("running")),
        (171.0, *attempt_ended(2, "completed")),
        (171.0, *state("completed")),
    )
    return reckon(journal, [first, second], now=9999.0, since_t=0.0)


_PARTS = {
    "training": 60.0,
    "rework": 15.0,
    "crash": 8.0,
    "queue": 60.0,
    "preparation": 18.0,
    "evaluation": 5.0,
    "save": 5.0,
}


def test_the_parts_of_a_crashed_and_resumed_run_are_those_counted_by_hand() -> None:
    reckoning = _crashed_and_resumed(reported=True)
    assert {cause: reckoning.seconds(cause) for cause in _PARTS} == pytest.approx(_PARTS)
    assert reckoning.elapsed_s == pytest.approx(sum(_PARTS.values())) == 171.0
    assert reckoning.ettr == pytest.approx(60 / 171)


def test_a_program_without_step_times_is_judged_by_its_usual_step() -> None:
    reckoning = _crashed_and_resumed(reported=False)
    # Of each attempt the first step, by whose report its start is over, counts as preparation.
    by_usual_step = {**_PARTS, "training": 58.0, "preparation": 20.0}
    assert {cause: reckoning.seconds(cause) for cause in _PARTS} == pytest.approx(by_usual_step)


def test_a_step_that_takes_many_times_the_usual_was_a_stall() -> None:
    journal = _record((0.0, *attempt_starting(1)), (1.0, *state("running")))
    events = _steps(0.0, 1, 10, 1.0, reported=True)
    late: Timed = (310.0, "metric", {"step": 11, "values": {"loss": 2.0, "step_time_s": 300.0}})
    running = _progress(1, (0.0, "started", {"step": 0}), *events, late)
    reckoning = reckon(journal, [running], now=311.0)
    assert reckoning.seconds("stall") == pytest.approx(299.0)
    assert reckoning.seconds("training") == pytest.approx(12.0)


def test_a_run_that_somebody_resumed_later_was_idle_meanwhile() -> None:
    journal = _record(
        (0.0, *attempt_starting(1)),
        (1.0, *state("running")),
        (10.0, *attempt_ended(1, "stopped")),
        (10.0, *state("stopped")),
        (110.0, *attempt_starting(2, generation=2)),
    )
    reckoning = reckon(journal, [], now=120.0)
    assert reckoning.seconds("idle") == 100.0
    assert reckoning.elapsed_s == sum(part.seconds for part in reckoning.parts) == 120.0


@pytest.mark.parametrize("bad", ["NaN", "Infinity", -5.0, 1e300, "x"])
def test_whatever_a_trainer_reports_the_parts_add_up(bad: object) -> None:
    journal = _record((0.0, *attempt_starting(1)), (1.0, *state("running")))
    running = _progress(
        1,
        (2.0, "started", {"step": 0}),
        (3.0, "metric", {"step": 1, "values": {"step_time_s": bad}}),
        (4.0, "eval", {"step": 1, "values": {}, "seconds": bad}),
        _saved(5.0, 1, stall_s=bad),
        (1.0, "metric", {"step": 2, "values": {"step_time_s": 1.0}}),
        (9.0, "metric", {"step": 3, "values": {"step_time_s": bad}}),
    )
    again = Progress.from_dict(running.to_dict())
    reckoning = reckon(journal, [again], now=20.0)
    assert sum(part.seconds for part in reckoning.parts) == pytest.approx(20.0)
    assert all(part.seconds >= 0 for part in reckoning.parts)
