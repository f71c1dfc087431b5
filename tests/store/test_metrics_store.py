from __future__ import annotations

import math
import random
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.store.points import Point, add_points

from trainer_runtime.core.decoding import number
from trainer_runtime.core.protocol.event import Event
from trainmaster.store.metrics_rows import StoredEvent
from trainmaster.store.metrics_store import MetricsStore


@pytest.fixture
def store(tmp_path: Path) -> Iterator[MetricsStore]:
    store = MetricsStore(tmp_path / "metrics.db")
    yield store
    store.close()


def loss(x: int, value: float, t: float = 1.0) -> Point:
    return Point("loss", x, t, value)


def event(attempt: int, seq: int, kind: str = "state") -> StoredEvent:
    return StoredEvent(attempt, Event.of(seq, float(seq), kind, seq, {"n": seq}))


def values(store: MetricsStore, run_id: str, key: str = "loss") -> list[list[tuple[int, float]]]:
    return [
        [(x, value) for x, _, value in store.points(piece.sid)]
        for piece in store.series(run_id, key)
    ]


def test_points_stand_once_under_their_step(store: MetricsStore) -> None:
    with store.writing():
        add_points(store, "run", 1, 1, 0, [loss(2, 2.0), loss(1, 3.0)])
        add_points(store, "run", 1, 1, 0, [loss(2, 2.5)])
    assert values(store, "run") == [[(1, 3.0), (2, 2.5)]]
    assert store.count_points() == 2


def test_attempts_segments_and_keys_are_series_of_their_own(store: MetricsStore) -> None:
    with store.writing():
        add_points(store, "run", 1, 2, 0, [loss(1, 1.0)])
        add_points(store, "run", 1, 1, 1, [loss(1, 2.0)])
        add_points(store, "run", 1, 1, 0, [loss(1, 3.0), Point("lr", 1, 1.0, 0.1)])
        add_points(store, "other", 1, 1, 0, [loss(1, 9.0)])
    assert values(store, "run") == [[(1, 3.0)], [(1, 2.0)], [(1, 1.0)]]
    assert store.keys("run") == ["loss", "lr"]
    assert [piece.attempt for piece in store.series("run", "loss")] == [1, 1, 2]


def test_every_number_of_lines_of_any_form_is_stored_and_nothing_else(store: MetricsStore) -> None:
    made = random.Random(11)
    odd = [1.5, 3, -0.0, True, None, "NaN", "-Infinity", "high", 10**400, [1.0], math.nan]
    keys = ("loss", "lr", "tokens", "note")
    rows = [
        (x, float(x), {key: made.choice(odd) for key in made.sample(keys, made.randrange(5))})
        for x in (made.randrange(300) for _ in range(1000))
    ]
    rows += [(x, None, {"lr": x / 3, "loss": x / 7}) for x in (-(2**53), 2**53, 2**53 + 1)]
    expected: dict[str, dict[int, float]] = {key: {} for key in keys}
    for x, _, measured in rows:
        for key, raw in measured.items():
            value = number(raw)
            if value is not None and abs(x) <= 2**53:
                expected[key][x] = value
    for begin in range(0, len(rows), 90):
        with store.writing():
            store.add_measured("run", 1, 1, 0, rows[begin : begin + 90])
    for key in keys:
        assert repr(values(store, "run", key)) == repr([sorted(expected[key].items())])


def test_a_key_without_any_number_is_none_of_the_run(store: MetricsStore) -> None:
    with store.writing():
        store.add_measured(
            "run", 1, 1, 0, [(1, 1.0, {"loss": 1.0, "note": "warm up"}), (2, 2.0, {})]
        )
    assert store.keys("run") == ["loss"]


def test_values_come_back_at_full_precision_and_none_is_dropped(store: MetricsStore) -> None:
    added = [0.1 + 0.2, 5e-324, -2.5, 1.7976931348623157e308, math.inf, -math.inf, math.nan]
    with store.writing():
        add_points(store, "run", 1, 1, 0, [loss(x, value) for x, value in enumerate(added)])
    (found,) = values(store, "run")
    assert [repr(value) for _, value in found] == [repr(value) for value in added]


def test_points_up_to_a_step_are_given_alone(store: MetricsStore) -> None:
    with store.writing():
        add_points(store, "run", 1, 1, 0, [loss(x, 1.0) for x in (1, 2, 3)])
    (piece,) = store.series("run", "loss")
    assert [x for x, _, _ in store.points(piece.sid, 2)] == [1, 2]
    assert [x for x, _, _ in store.points(piece.sid, math.inf)] == [1, 2, 3]


def test_what_is_written_stands_at_once_or_not_at_all(store: MetricsStore) -> None:
    with pytest.raises(ZeroDivisionError), store.writing():
        add_points(store, "run", 1, 1, 0, [loss(1, 1.0)])
        store.move_offset("run", 1, "events", old=0, new=10)
        raise ZeroDivisionError
    assert store.count_points() == 0
    assert store.offset("run", 1, "events") == 0
    with store.writing():
        add_points(store, "run", 1, 1, 0, [loss(1, 1.0)])
    assert values(store, "run") == [[(1, 1.0)]]


def test_another_process_may_throw_away_what_this_one_knows(
    store: MetricsStore, tmp_path: Path
) -> None:
    with store.writing():
        add_points(store, "run", 1, 1, 0, [loss(1, 1.0)])
    other = MetricsStore(tmp_path / "metrics.db")
    with other.writing():
        other.clear()
        add_points(other, "another", 1, 1, 0, [loss(1, 7.0)])
    with store.writing():
        add_points(store, "run", 1, 1, 0, [loss(2, 2.0)])
    assert values(store, "run") == [[(2, 2.0)]]
    assert values(store, "another") == [[(1, 7.0)]]
    other.close()


def test_events_beyond_a_position_are_the_journals_and_the_newer_attempts(
    store: MetricsStore,
) -> None:
    with store.writing():
        store.add_events("run", 1, [event(0, seq) for seq in range(4)])
        store.add_events("run", 1, [event(attempt, seq) for attempt in (1, 2, 3) for seq in (0, 1)])
        store.add_events("other", 1, [event(0, 9)])
    found = store.events_after("run", 1, (2, 2, 0))
    assert {(item.attempt, item.event.seq) for item in found} == {(0, 3), (2, 1), (3, 0), (3, 1)}
    assert len(store.events_after("run", 1, (-1, 0, -1))) == 10
    assert store.events_after("run", 1, (3, 3, 1)) == []


def test_one_run_is_forgotten_without_the_others(store: MetricsStore) -> None:
    with store.writing():
        for run in ("run", "other"):
            add_points(store, run, 1, 1, 0, [loss(1, 1.0)])
            store.add_events(run, 1, [event(0, 1)])
            store.put_fold(run, 1, 0, {"a": 1})
            store.move_offset(run, 1, "events", old=0, new=10)
        store.clear("run")
    assert (values(store, "run"), store.fold("run", 1, 0)) == ([], None)
    assert (values(store, "other"), store.fold("other", 1, 0)) == ([[(1, 1.0)]], {"a": 1})
    assert (store.offset("run", 1, "events"), store.offset("other", 1, "events")) == (0, 10)


def test_folds_come_with_the_journals_first(store: MetricsStore) -> None:
    with store.writing():
        for attempt in (2, 0, 1):
            store.put_fold("run", 1, attempt, {"attempt": attempt})
        store.put_fold("run", 2, 0, {"attempt": 0})
    assert [attempt for attempt, _ in store.folds("run", 1)] == [0, 1, 2]


def test_its_version_changes_with_whatever_any_process_writes(
    store: MetricsStore, tmp_path: Path
) -> None:
    other = MetricsStore(tmp_path / "metrics.db")
    for writing in (store, other):
        before = store.version()
        assert store.version() == before
        with writing.writing():
            add_points(writing, "run", 1, 1, 0, [loss(before[1] + 1, 2.0)])
        assert store.version() != before
    other.close()
