from __future__ import annotations

import math
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.core.journal_records import (
    attempt_ended,
    attempt_starting,
    evaluation,
    kept,
    lines,
    metric,
    started,
    state,
)
from support.host.logical_clock import contents

from trainer_runtime.core.protocol.journal import Record
from trainer_runtime.core.protocol.lines import encode
from trainer_runtime.core.protocol.progress import Progress
from trainmaster.store.metrics_store import MetricsStore
from trainmaster.store.mirror import Mirror, PlacementMirror
from trainmaster.sync.ingest import Ingest, MirrorGrowth, ingest_placement

REPOSITORY = Path(__file__).parents[2]
RUN = "small-abc234"
ROUNDS = int(os.environ.get("TRAINMASTER_FAULT_ROUNDS", "3"))
# Takes in what the mirror holds, over and over, until it is killed.
_INGESTING = """
import sys
from pathlib import Path
from trainmaster.sync.ingest import Ingest, MirrorGrowth
from trainmaster.store.metrics_store import MetricsStore
from trainmaster.store.mirror import Mirror
store, mirror = MetricsStore(Path(sys.argv[1])), Mirror(Path(sys.argv[2])).of(sys.argv[3], 1)
ingest = Ingest(store, int(sys.argv[4]))
print("ready", flush=True)
while True:
    ingest.take_in([MirrorGrowth(sys.argv[3], 1, mirror, None)])
"""

FIRST = b"".join(
    lines(
        (
            started(0, 100),
            metric(1, 3.0, lr=0.1),
            metric(2, math.nan, lr=0.1, grad_norm=math.inf),
            evaluation(2, 2.75),
            *kept(2, 2.75),
            ("gossip", {"about": "a later version's kind"}),
            metric(3, 2.5),
        )
    )
)
SECOND = b"".join(lines((started(2, 100), metric(3, 2.25), metric(4, -math.inf), metric(3, 2.0))))
TORN = FIRST + b'{"v":1,"seq":8,"t":170#\n\n[]\nnot json\n' + lines((metric(9, 1.5),))[0]
JOURNAL = b"".join(
    lines(
        (
            attempt_starting(1),
            state("preparing", generation=1),
            ("attempt_running", {"attempt": 1}),
            state("running"),
            ("sample", {"values": {"cpu_util": 97.5, "gpu_util/0": 12.0}}),
            attempt_ended(1, "killed", signal=9, started_at_step=0, last_step=3),
            state("recovering", reason="killed"),
            attempt_starting(2, why="killed"),
        )
    )
)
FILES = {
    "attempts/1/events.jsonl": TORN,
    "attempts/2/events.jsonl": SECOND,
    "supervisor.jsonl": JOURNAL,
}


@pytest.fixture
def mirror(tmp_path: Path) -> PlacementMirror:
    return Mirror(tmp_path / "mirror").of(RUN, 1)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[MetricsStore]:
    store = MetricsStore(tmp_path / "metrics.db")
    yield store
    store.close()


def take_in(store: MetricsStore, mirror: PlacementMirror, files: Mapping[str, bytes]) -> bool:
    for name, data in files.items():
        mirror.append(name, data)
    return ingest_placement(store, mirror, RUN, 1)


def points(store: MetricsStore, key: str) -> list[tuple[int, int, int, float]]:
    """(attempt, segment, x, value) of every point of a key."""
    return [
        (piece.attempt, piece.segment, x, value)
        for piece in store.series(RUN, key)
        for x, _, value in store.points(piece.sid)
    ]


def test_points_events_and_folds_come_from_the_mirror(
    store: MetricsStore, mirror: PlacementMirror
) -> None:
    assert take_in(store, mirror, FILES)
    assert [point[:3] for point in points(store, "loss")] == [
        (1, 0, 1),
        (1, 0, 2),
        (1, 0, 3),
        (1, 0, 9),
        (2, 0, 3),
        (2, 0, 4),
        (2, 1, 3),
    ]
    assert points(store, "val_loss") == [(1, 0, 2, 2.75)]
    assert points(store, "cpu_util") == [(0, 0, 1_700_000_004_000, 97.5)]
    kinds = [one.event.kind for one in store.events_after(RUN, 1, (-1, 0, -1)) if one.attempt == 1]
    assert kinds == ["started", "eval", "checkpoint", "checkpoint", "gossip"]
    folds = dict(store.folds(RUN, 1))
    assert Progress.from_dict(folds[1]["progress"]).verified_step == 2
    assert Progress.from_dict(folds[2]["progress"]).started_at_step == 2
    assert len(Record.from_dict(folds[0]["record"]).attempts) == 2


def test_a_fold_keeps_warnings_and_a_planned_restart(
    store: MetricsStore, mirror: PlacementMirror
) -> None:
    warned = ("warning", {"code": "nan_loss", "step": 3, "message": "the loss is NaN"})
    planned = {"due_t": 5.0, "why": "guard", "mode": "latest", "candidates": [2], "set": {}}
    journal = (attempt_starting(1), ("restart_planned", {**planned, "skip": None}))
    files = {"supervisor.jsonl": journal, "attempts/1/events.jsonl": (started(), warned)}
    assert take_in(store, mirror, {name: b"".join(lines(rows)) for name, rows in files.items()})
    folds = dict(store.folds(RUN, 1))
    (warning,) = Progress.from_dict(folds[1]["progress"]).warnings
    assert (warning.code, warning.step) == ("nan_loss", 3)
    pending = Record.from_dict(folds[0]["record"]).pending
    assert pending is not None and (pending.why, pending.candidates) == ("guard", (2,))


def test_what_is_not_finite_is_kept_as_such(store: MetricsStore, mirror: PlacementMirror) -> None:
    take_in(store, mirror, FILES)
    by_step = {(attempt, x): value for attempt, _, x, value in points(store, "loss")}
    assert math.isnan(by_step[1, 2])
    assert by_step[2, 4] == -math.inf
    assert points(store, "grad_norm") == [(1, 0, 2, math.inf)]


def test_steps_that_go_back_inside_an_attempt_open_a_new_segment(
    store: MetricsStore, mirror: PlacementMirror
) -> None:
    take_in(store, mirror, {"attempts/2/events.jsonl": SECOND})
    assert [(segment, x, value) for _, segment, x, value in points(store, "loss")] == [
        (0, 3, 2.25),
        (0, 4, -math.inf),
        (1, 3, 2.0),
    ]


def test_what_was_measured_before_adopting_is_a_series_but_no_step_of_the_attempt(
    store: MetricsStore, mirror: PlacementMirror
) -> None:
    fields = ({"step": 1, "values": {"loss": 5.0}}, {"step": 2, "values": {"val_loss": 4.0}})
    lines = [encode(at, 1e9, "history", part) for at, part in enumerate(fields)]
    lines.append(encode(2, 1e9, "started", {"step": 2, "target_step": 4}))
    lines.append(encode(3, 1e9, "metric", {"step": 3, "values": {"loss": 3.0}}))
    take_in(store, mirror, {"attempts/1/events.jsonl": b"".join(lines)})
    assert points(store, "loss") == [(1, 0, 1, 5.0), (1, 0, 3, 3.0)]
    progress = Progress.from_dict(dict(store.folds(RUN, 1))[1]["progress"])
    assert (progress.step, progress.steps_done, progress.started_at_step) == (3, 1, 2)
    assert progress.best == {"val_loss": (4.0, 2)}


def test_a_second_read_finds_nothing_new(store: MetricsStore, mirror: PlacementMirror) -> None:
    take_in(store, mirror, FILES)
    before = contents(store)
    assert not ingest_placement(store, mirror, RUN, 1)
    assert contents(store) == before


@pytest.mark.parametrize("portion_bytes", [250, 300, 1000])
def test_a_file_that_is_taken_in_by_portions_gives_the_same(
    store: MetricsStore, mirror: PlacementMirror, tmp_path: Path, portion_bytes: int
) -> None:
    take_in(store, mirror, FILES)
    other = MetricsStore(tmp_path / "portions.db")
    Ingest(other, portion_bytes).take_in([MirrorGrowth(RUN, 1, mirror, None)])
    assert contents(other) == contents(store)
    other.close()


def test_a_line_is_taken_in_once_it_is_whole(store: MetricsStore, mirror: PlacementMirror) -> None:
    name = "attempts/1/events.jsonl"
    line = lines((metric(1, 2.5),))[0]
    take_in(store, mirror, {name: line[:-1]})
    assert points(store, "loss") == []
    assert store.offset(RUN, 1, name) == 0
    take_in(store, mirror, {name: b"\n"})
    assert points(store, "loss") == [(1, 0, 1, 2.5)]


def test_events_that_lack_what_their_kind_has_are_passed_over(
    store: MetricsStore, mirror: PlacementMirror
) -> None:
    broken = b"".join(
        b'{"v":1,"seq":%d,"t":1.0,%b}\n' % (number, fields)
        for number, fields in enumerate(
            (
                b'"kind":"metric"',
                b'"kind":"metric","step":"3","values":{"loss":1.0}',
                b'"kind":"metric","step":1,"values":[1.0]',
                b'"kind":"metric","step":2,"values":{"loss":"many","lr":0.5,"note":null}',
                b'"kind":"eval","step":2,"values":{"val_loss":true}',
            )
        )
    )
    take_in(store, mirror, {"attempts/1/events.jsonl": broken + lines((metric(4, 2.5),))[0]})
    assert points(store, "loss") == [(1, 0, 4, 2.5)]
    assert points(store, "lr") == [(1, 0, 2, 0.5)]


def test_a_line_longer_than_a_portion_does_not_stop_what_follows(
    store: MetricsStore, mirror: PlacementMirror
) -> None:
    huge = b"x" * (9 << 20) + b"\n"
    take_in(store, mirror, {"attempts/1/events.jsonl": huge + lines((metric(1, 2.5),))[0]})
    assert points(store, "loss") == [(1, 0, 1, 2.5)]


cuts = st.lists(st.tuples(st.sampled_from(sorted(FILES)), st.integers(1, 300)), max_size=20)


@pytest.mark.slow
@settings(max_examples=40)
@given(cuts)
def test_any_cutting_of_the_mirrored_bytes_gives_the_same_database(
    cuts: list[tuple[str, int]],
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        whole = MetricsStore(Path(folder, "whole.db"))
        take_in(whole, Mirror(Path(folder, "whole")).of(RUN, 1), FILES)
        pieces = MetricsStore(Path(folder, "pieces.db"))
        mirror = Mirror(Path(folder, "pieces")).of(RUN, 1)
        left = dict(FILES)
        for name, size in cuts:
            take_in(pieces, mirror, {name: left[name][:size]})
            left[name] = left[name][size:]
        take_in(pieces, mirror, left)
        assert contents(pieces) == contents(whole)
        whole.close()
        pieces.close()


@pytest.mark.parametrize("round_number", range(ROUNDS))
def test_a_kill_in_the_middle_loses_and_doubles_nothing(
    tmp_path: Path, mirror: PlacementMirror, round_number: int
) -> None:
    path = tmp_path / "metrics.db"
    all_lines = lines([started(0, 9000), *(metric(step, 1.0 / step) for step in range(1, 6001))])
    name = "attempts/1/events.jsonl"
    portion = 1500 + 40 * (round_number % 10)
    for first in range(0, len(all_lines), portion):
        child = subprocess.Popen(
            [sys.executable, "-c", _INGESTING, str(path), str(tmp_path / "mirror"), RUN, "4096"],
            env={**os.environ, "PYTHONPATH": f"{REPOSITORY}/server:{REPOSITORY}"},
            stdout=subprocess.PIPE,
        )
        assert child.stdout is not None and child.stdout.readline() == b"ready\n"
        for line in range(first, min(first + portion, len(all_lines)), 100):
            mirror.append(name, b"".join(all_lines[line : min(line + 100, first + portion)]))
        child.send_signal(signal.SIGKILL)
        child.communicate()
    store = MetricsStore(path)
    ingest_placement(store, mirror, RUN, 1)
    expected = [(1, 0, step, 1.0 / step) for step in range(1, 6001)]
    assert points(store, "loss") == expected
    (fold,) = [body for _, body in store.folds(RUN, 1)]
    assert Progress.from_dict(fold["progress"]).steps_done == 6000
    store.close()
