"""The supervisor killed between any two lines of its journal, and another one started.

What the killed one left as a snapshot is any that it could have written by then, or none.
`TRAINMASTER_FAULT_SEED` chooses which.
"""

from __future__ import annotations

import json
import os
import random
import shutil
from pathlib import Path
from typing import Any

import pytest
from support.core.journal_records import kept, metric, started
from support.host.scripted_processes import Box, Life

from trainer_runtime.core.policy.endings import Exit
from trainer_runtime.core.protocol.states import AttemptState, PlacementState

pytestmark = pytest.mark.slow

SEED = int(os.environ.get("TRAINMASTER_FAULT_SEED", str(random.SystemRandom().randrange(10**6))))

SNAPSHOTS = "snapshots"
WARNING = ("warning", {"code": "nan_loss", "step": 47, "message": "NaN"})
LIVES: dict[int, Life] = {
    1: Life((started(), metric(1), *kept(20), metric(30)), Exit(None, 9)),
    2: Life((started(20), metric(21), *kept(40), metric(47), WARNING), Exit(76, None)),
    3: Life((started(40), metric(41)), Exit(1, None)),
    4: Life((started(40), metric(41), *kept(60)), end=None),
    5: Life((started(60), metric(100), *kept(100), ("completed", {"step": 100}))),
}


def a_life_with_everything(folder: Path) -> Box:
    """Killed, ended by the guard, crashed, stopped, resumed, completed."""
    box = Box(folder / "small-abc234", LIVES, snapshot_every=1)
    box.set_up()
    brought_to_the_end(box, folder / SNAPSHOTS)
    return box


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Box:
    return a_life_with_everything(tmp_path_factory.mktemp("finished"))


def recorded_by(box: Box) -> list[tuple[Any, ...]]:
    """What the journal says of each attempt, but for the times."""
    return [
        (
            a.number,
            a.generation,
            a.why,
            a.mode,
            a.set,
            a.skip,
            a.reason,
            a.last_step,
            a.verified_step,
        )
        for a in box.record().attempts
    ]


def found_in(box: Box) -> set[tuple[str, bool]]:
    """The ids of the findings that the journal records, and whether each is over."""
    closed: dict[str, bool] = {}
    for event in box.journal():
        if event["kind"] == "finding":
            assert closed.get(event["finding"]["id"]) is not False, "recorded twice"
            closed[event["finding"]["id"]] = False
        elif event["kind"] == "finding_closed":
            closed[event["id"]] = True
    return set(closed.items())


def killed_after(
    finished: Box, lines: int, folder: Path, made: random.Random, *, start_was_made: bool
) -> Box:
    """The host as a kill right after that many lines leaves it.

    A trainer that was about to be started may have been (`start_was_made`), or not.
    """
    box = Box(folder / "small-abc234", LIVES, snapshot_every=made.choice((1, 7, 5000)))
    shutil.copytree(finished.root, box.root, symlinks=True)
    kept_lines = finished.run.journal.read_bytes().splitlines(keepends=True)[:lines]
    box.run.journal.write_bytes(b"".join(kept_lines))
    leave_a_snapshot(box, finished.root.parent / SNAPSHOTS, made)
    events = box.journal()
    prepared = {event["attempt"] for event in events if event["kind"] == "prepared"}
    running = {event["attempt"] for event in events if event["kind"] == "attempt_running"}
    box.started = sorted(prepared if start_was_made else running)
    for number in box.started:
        if number != 4 or any(event["kind"] == "attempt_signalled" for event in events):
            box.finish(number, finished.ends[number])
    for number in set(LIVES) - set(box.started):
        shutil.rmtree(box.root / "attempts" / str(number), ignore_errors=True)
    box.now = finished.now
    ask_what_was_asked_then(box, events)
    return box


def leave_a_snapshot(box: Box, snapshots: Path, made: random.Random) -> None:
    """One that was written before the journal had come this far, or none."""
    lines_end = box.run.journal.stat().st_size
    earlier = [
        path
        for path in sorted(snapshots.iterdir())
        if json.loads(path.read_bytes())["files"]["supervisor.jsonl"][0] <= lines_end
    ]
    box.run.snapshot.unlink()
    box.run.older_snapshot.unlink(missing_ok=True)
    if earlier and made.random() < 0.9:
        shutil.copy(made.choice(earlier[-8:]), box.run.snapshot)


def ask_what_was_asked_then(box: Box, events: list[dict[str, Any]]) -> None:
    """The request that stood when the journal had come this far."""
    if any(event.get("generation") == 3 for event in events):
        resume(box)
    elif any(event["kind"] == "attempt_signalled" for event in events):
        box.ask("stopped", 2)
    else:
        box.ask("running", 1)


def resume(box: Box) -> None:
    box.ask("running", 3, why="resume", set={"optimizer.lr": 0.5})


def brought_to_the_end(box: Box, snapshots: Path | None = None) -> None:
    """Stop the fourth attempt once it runs, resume once the run has stopped, see it complete.

    `snapshots`: where to put each that is written.
    """
    supervisor = box.supervisor()
    for tick in range(3000):
        if snapshots is not None and box.run.snapshot.exists():
            snapshots.mkdir(exist_ok=True)
            shutil.copy(box.run.snapshot, snapshots / f"{tick:04d}.json")
        record = box.record()
        newest = record.current
        if newest and newest.number == 4 and newest.state is AttemptState.RUNNING:
            box.ask("stopped", 2)
        if record.state is PlacementState.STOPPED:
            resume(box)
        if supervisor.tick() and box.record().state is PlacementState.COMPLETED:
            supervisor.close()
            return
        box.now += 1.0
    raise AssertionError(f"no end: {box.journal()[-5:]}")


def moments(finished: Box) -> list[tuple[int, bool]]:
    """After how many lines to kill, and whether the trainer that was about to be started then was:
    both where one was, and anywhere else it makes no difference."""
    found, prepared, running = [(0, False)], set[int](), set[int]()
    for number, line in enumerate(finished.run.journal.read_bytes().splitlines(), 1):
        event = json.loads(line)
        prepared |= {event["attempt"]} if event["kind"] == "prepared" else set()
        running |= {event["attempt"]} if event["kind"] == "attempt_running" else set()
        found += [(number, False)] + [(number, True)] * (prepared != running)
    return found


@pytest.mark.long
@pytest.mark.parametrize("half", [0, 1])
def test_a_new_supervisor_comes_to_the_same_end_and_starts_nothing_twice(
    finished: Box, tmp_path: Path, half: int
) -> None:
    print(f"TRAINMASTER_FAULT_SEED={SEED}")
    made = random.Random(SEED)
    for lines, start_was_made in moments(finished)[half::2]:
        said = f"killed after {lines} lines, the start was made: {start_was_made}"
        folder = tmp_path / str(lines)
        box = killed_after(finished, lines, folder, made, start_was_made=start_was_made)
        before = list(box.started)
        brought_to_the_end(box)
        assert recorded_by(box) == recorded_by(finished), said
        assert found_in(box) == found_in(finished), said
        assert box.started == [*before, *range(len(before) + 1, 6)], said
        assert box.record().closed
        shutil.rmtree(folder)
