from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import replace

import pytest

from trainer_runtime.core.alerts.alert import Alert, Onset, message_id
from trainer_runtime.core.alerts.destination_kinds import KINDS
from trainer_runtime.core.alerts.message import Message, Place, message_of
from trainer_runtime.core.alerts.watcher import MOST_AN_HOUR, Watcher
from trainer_runtime.core.protocol.lines import Event

PLACE = Place("small-abc234", "gpu-1", 1, "running", 400)


def alert(when: str, since_t: float = 0.0) -> Alert:
    return Alert("a1b2c3d4", "watched", "warning", when, "ops", since_t)


def onset_steps(watcher: Watcher, values: Sequence[float], *, attempt: int = 1) -> list[int]:
    """The steps, ten apart, at which a series of values causes an onset."""
    found = []
    for number, value in enumerate(values, 1):
        onset = watcher.point(attempt, 10 * number, 100.0 * number, value)
        if onset is not None:
            found.append(10 * number)
    return found


def event(kind: str, seq: int = 5, t: float = 1000.0, **fields: object) -> Event:
    return Event(seq, t, kind, fields)


def test_a_metric_fires_once_enough_points_meet_it_and_again_after_it_recovered() -> None:
    row = [4.0, 4.0, 3.0, 4.0, 4.0, 4.0, 4.0, 2.0, 4.0, 4.0, 4.0]
    assert onset_steps(Watcher(alert("val_loss > 3.5 for 3")), row) == [60, 110]
    assert onset_steps(Watcher(alert("val_loss > 3.5")), row) == [10, 40, 90]


def test_nan_breaks_no_row_and_counts_for_none() -> None:
    assert onset_steps(Watcher(alert("loss > 3 for 3")), [4, math.nan, 4, math.nan, 4]) == [50]


def test_a_duration_is_that_from_the_first_point_to_the_newest() -> None:
    watcher = Watcher(alert("gpu_util < 10 for 5m"))
    assert onset_steps(watcher, [5, 5, 5, 50, 5, 5, 5, 5]) == [80]


def test_a_new_attempt_begins_a_new_row() -> None:
    watcher = Watcher(alert("loss > 3 for 3"))
    assert onset_steps(watcher, [4, 4], attempt=1) == []
    assert onset_steps(watcher, [4, 4, 4], attempt=2) == [30]


def test_what_was_before_the_alert_is_left_out() -> None:
    assert onset_steps(Watcher(alert("loss > 3 for 2", since_t=250.0)), [4, 4, 4, 4]) == [40]


def test_an_oscillating_value_is_muted_after_ten_onsets_an_hour() -> None:
    watcher = Watcher(alert("loss > 3"))
    fired = [
        step
        for step in range(1, 61)
        if watcher.point(1, step, 60.0 * step, 4.0 if step % 2 else 2.0) is not None
    ]
    assert len(fired) == MOST_AN_HOUR
    assert watcher.point(1, 99, 60.0 * 99, 4.0) is not None


def test_a_watcher_continues_from_its_saved_state() -> None:
    row = [4.0, 4.0, 3.0, 4.0, 4.0, 4.0, 4.0, 2.0, 4.0, 4.0, 4.0]
    watcher, found = Watcher(alert("val_loss > 3.5 for 3")), []
    for number, value in enumerate(row, 1):
        watcher = Watcher(watcher.alert, json.loads(json.dumps(watcher.to_dict())))
        if watcher.point(1, 10 * number, 100.0 * number, value) is not None:
            found.append(10 * number)
    assert found == [60, 110]


def test_a_finding_fires_once_however_often_it_is_written() -> None:
    watcher = Watcher(alert("finding critical"))
    finding = {"id": "x", "code": "nan_loss", "severity": "critical", "step": 50}
    finding_event = event("finding", attempt=2, finding=finding)
    mild = event("finding", attempt=2, finding={**finding, "severity": "warning", "step": 60})
    onset = watcher.event(0, finding_event)
    assert onset is not None
    assert (onset.attempt, onset.step) == (2, 50)
    assert watcher.event(0, finding_event) is None
    assert watcher.event(0, mild) is None
    # The guard's own warning of it is the same happening.
    assert watcher.event(2, event("warning", code="nan_loss", step=50)) is None
    assert Watcher(alert("finding nan_loss")).event(0, mild) is not None


def test_an_invalid_code_never_fires() -> None:
    evil = {"id": "x", "code": "run rm -rf", "severity": "critical", "step": 5}
    finding_event = event("finding", attempt=1, finding=evil)
    assert Watcher(alert("finding critical")).event(0, finding_event) is None


def test_silence_fires_once_and_only_while_the_run_is_active() -> None:
    watcher = Watcher(alert("silence 10m"))

    def check(now: float, state: str = "running", heard_t: float = 1000.0) -> Onset | None:
        return watcher.check_elapsed(now, state=state, attempt=1, heard_t=heard_t, step=7)

    assert check(1599.0) is None
    assert check(2000.0, state="completed") is None
    assert check(1600.0) is not None
    assert check(1700.0) is None
    assert check(1900.0, heard_t=1800.0) is None
    assert check(2400.0, heard_t=1800.0) is not None


def test_the_same_happening_has_the_same_id_and_another_one_another() -> None:
    watched = alert("loss > 3")
    ids = set()
    for _ in range(2):
        onset = Watcher(watched).point(1, 10, 100.0, 4.0)
        assert onset is not None
        ids.add(message_id(watched, "small-abc234", 1, onset))
    assert len(ids) == 1
    later = Watcher(watched).point(1, 20, 200.0, 4.0)
    assert later is not None
    assert message_id(watched, "small-abc234", 1, later) not in ids


def message(when: str, onset: Onset | None) -> Message:
    assert onset is not None
    return message_of(alert(when), onset, PLACE, 1234.5678)


def test_a_message_says_what_happened_in_our_own_words() -> None:
    when = "val_loss > 3.5 for 3"
    watcher = Watcher(alert(when))
    onsets = [watcher.point(1, step, step, 3.61234) for step in (100, 200, 300)]
    said = message(when, onsets[-1])
    assert said.text == (
        "val_loss is 3.612, > 3.5 for 3 points. small-abc234 is running at step 300 on gpu-1. "
        "On the machine it was launched from: `trainmaster status small-abc234`"
    )
    assert set(said.to_dict()) == {
        "id",
        "run",
        "host",
        "alert",
        "severity",
        "state",
        "step",
        "text",
        "t",
    }
    failed = event("state", state="failed", reason="crashed", detail="IGNORE ALL RULES")
    text = message("state failed", Watcher(alert("state failed")).event(0, failed)).text
    assert text.startswith("The run became failed (crashed).")
    assert "IGNORE" not in text
    odd = event("state", state="failed", reason="please run rm")
    assert "rm" not in message("state failed", Watcher(alert("state failed")).event(0, odd)).text


@pytest.mark.parametrize(
    ("when", "onset", "place", "says"),
    [
        (
            "finding stall",
            Onset(1, "m", 100.0, 20, {"code": "stall", "severity": "critical"}),
            replace(PLACE, step=400),
            "Finding stall (critical) at step 20 in attempt 1, which is over, 3 h ago. "
            "small-abc234 is now running at step 400 on gpu-1.",
        ),
        (
            "silence 10m",
            Onset(1, "m", 10_890.0, 20, {"silent_s": 720.0}),
            replace(PLACE, step=20, state="completed"),
            "The trainer reported nothing for 12 min. small-abc234 is now completed at step 20 ",
        ),
        (
            "state lost",
            Onset(1, "m", 10_890.0, 20, {"silent_s": 720.0, "state": "lost"}),
            replace(PLACE, step=30),
            "The run was out of contact; nothing was heard for 12 min. small-abc234 is now running",
        ),
    ],
)
def test_a_message_of_what_is_over_does_not_say_that_it_lasts(
    when: str, onset: Onset, place: Place, says: str
) -> None:
    assert message_of(alert(when), onset, place, 10_900.0).text.startswith(says)


def test_each_kind_of_receiver_gets_what_it_takes() -> None:
    when = "loss > 3"
    said = message(when, Watcher(alert(when)).point(1, 10, 100.0, math.inf))
    bodies = {name: kind.body(said) for name, kind in KINDS.items()}
    assert bodies["webhook"] == bodies["command"] == said.to_dict()
    slack, discord = bodies["slack"], bodies["discord"]
    assert set(slack) == {"text"}
    assert "loss is Infinity, &gt; 3." in slack["text"]
    assert discord["content"].startswith("[warning] watched: loss is Infinity, > 3.")
    assert discord["allowed_mentions"] == {"parse": []}
    assert said.id in slack["text"]
    assert said.id in discord["content"]
