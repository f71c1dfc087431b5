"""A supervisor that continues from what the one before had folded."""

from __future__ import annotations

import json
import math
import os
import random
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.core.journal_records import kept, metric, started
from support.host.scripted_processes import Box, Life

from trainer_runtime.core.policy.endings import Exit
from trainer_runtime.core.protocol.states import PlacementState
from trainer_runtime.host.files.layout import RunFolder
from trainer_runtime.host.supervise.history import History, open_history, read_snapshot

KILLS = int(os.environ.get("TRAINMASTER_FAULT_KILLS", "4"))
SEED = int(os.environ.get("TRAINMASTER_FAULT_SEED", str(random.SystemRandom().randrange(10**6))))
SPIKE = [metric(step, 30.0) for step in range(150, 160)]
LONG = Life((started(), *map(metric, range(1, 150)), *kept(120), *SPIKE), end=None)
# Writes a snapshot over and over, until it is killed.
_WRITING = """
import sys
from pathlib import Path
from trainer_runtime.host.files.layout import RunFolder
from trainer_runtime.host.supervise.history import open_history
history = open_history(RunFolder(Path(sys.argv[1])), lambda: 1.0, 0)
history.recall(lambda: None)
print("ready", flush=True)
while True:
    history.keep()
"""


@pytest.fixture
def box(tmp_path: Path) -> Box:
    """A run whose supervisor has left a snapshot, and was killed a little later."""
    box = Box(tmp_path / "small-abc234", {1: LONG}, snapshot_every=1)
    box.set_up()
    supervisor = box.supervisor()
    box.tick(supervisor, "finding")
    supervisor.tick()
    supervisor.close()
    return box


def history_of(run: RunFolder) -> History:
    history = open_history(run, lambda: 2_000.0)
    history.recall(lambda: None)
    history.close()
    return history


def forget_snapshots(run: RunFolder) -> None:
    run.snapshot.unlink()
    run.older_snapshot.unlink(missing_ok=True)


def known(history: History) -> tuple[Any, ...]:
    """Everything that a supervisor decides by."""
    record, watch = history.journal.record.to_dict(), history.watch.to_dict()
    progress = [one.to_dict() for one in history.events.progress.values()]
    return json.loads(json.dumps([record, progress, watch["throttle"], watch["detectors"]]))


def test_it_knows_what_one_knows_that_reads_everything(box: Box) -> None:
    box.emit(1, metric(160, 30.5))
    continued = known(history_of(box.run))
    forget_snapshots(box.run)
    assert known(history_of(box.run)) == continued
    assert continued[1][0]["step"] == 160


def test_it_reads_only_what_came_later(box: Box) -> None:
    size = box.run.attempt(1).events.stat().st_size
    with box.run.attempt(1).events.open("r+b") as events:
        events.write(b"#" * (size - 100))
    box.emit(1, metric(161))
    (progress,) = history_of(box.run).events.progress.values()
    assert (progress.step, progress.steps_done, progress.verified_step) == (161, 160, 120)


def test_it_is_written_of_values_that_are_not_finite(box: Box) -> None:
    forget_snapshots(box.run)
    values = {"val_loss": math.inf, "loss": math.nan}
    box.emit(1, ("eval", {"step": 160, "values": values}))
    history = open_history(box.run, lambda: 2_000.0, 1)
    history.recall(lambda: None)
    history.keep()
    history.close()
    assert read_snapshot(box.run) is not None
    continued = history_of(box.run)
    forget_snapshots(box.run)
    assert repr(known(continued)) == repr(known(history_of(box.run)))


def test_the_one_before_is_read_where_the_newest_is_torn(box: Box) -> None:
    history = open_history(box.run, lambda: 2_000.0, 1)
    history.recall(lambda: None)
    for step in (161, 162):  # a snapshot after each
        box.emit(1, metric(step))
        history.events.read(1)
        history.keep()
    history.close()
    torn(box)
    found = read_snapshot(box.run)
    assert found is not None and found.parts["progress"][0]["step"] == 161
    assert history_of(box.run).events.progress[1].step == 162


def shortened(box: Box) -> None:
    with box.run.journal.open("r+b") as journal:
        journal.truncate(journal.seek(0, 2) // 2)


def rewritten(box: Box) -> None:
    events = box.run.attempt(1).events
    events.write_bytes(events.read_bytes().replace(b'"loss":30.0', b'"loss":31.0'))


def torn(box: Box) -> None:
    box.run.snapshot.write_bytes(box.run.snapshot.read_bytes()[:-200])


def changed(key: str, value: object) -> Callable[[Box], None]:
    def change(box: Box) -> None:
        body = json.loads(box.run.snapshot.read_bytes())
        (body["parts"] if key in body["parts"] else body)[key] = value
        box.run.snapshot.write_text(json.dumps(body))

    return change


@pytest.mark.parametrize(
    "damage",
    [
        shortened,
        rewritten,
        torn,
        changed("format", "0"),
        changed("files", []),
        changed("record", {"state": "unheard of"}),
        changed("progress", [{}]),
        changed("watch", {"attempt": 1}),
        lambda box: box.run.snapshot.write_bytes(b"[" * 100_000),
    ],
)
def test_one_that_is_of_no_use_is_ignored(box: Box, damage: Callable[[Box], None]) -> None:
    damage(box)
    found = known(history_of(box.run))
    forget_snapshots(box.run)
    assert known(history_of(box.run)) == found


def test_a_supervisor_with_a_useless_snapshot_brings_the_run_to_its_end(box: Box) -> None:
    changed("watch", None)(box)
    box.lives = {1: LONG, 2: Life((started(120), metric(160), ("completed", {"step": 160})))}
    box.finish(1, Exit(None, 9))
    assert box.to_the_end().state is PlacementState.COMPLETED


def test_a_kill_while_it_is_written_leaves_a_whole_one(box: Box) -> None:
    print(f"TRAINMASTER_FAULT_SEED={SEED}")
    made = random.Random(SEED)
    for _ in range(KILLS):
        with subprocess.Popen(
            [sys.executable, "-c", _WRITING, str(box.root)], stdout=subprocess.PIPE
        ) as writer:
            assert writer.stdout is not None and writer.stdout.readline() == b"ready\n"
            with pytest.raises(subprocess.TimeoutExpired):
                writer.wait(made.uniform(0.0, 0.05))
            writer.send_signal(signal.SIGKILL)
        assert read_snapshot(box.run) is not None
