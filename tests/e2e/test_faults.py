"""Kills everything that a run consists of, at random moments, and looks whether anything is lost.

`TRAINMASTER_FAULT_KILLS` sets how many kills (4), `TRAINMASTER_FAULT_SEED` which; both are printed.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
from pathlib import Path
from typing import Any

from mirrored import assert_mirror_equals_the_box
from running import LONGEST_S, CommandLine, kill, let_it_run, processes_of, small_spec, wait_until

from trainmaster.metrics_store import MetricsStore

KILLS = int(os.environ.get("TRAINMASTER_FAULT_KILLS", "4"))
SEED = int(os.environ.get("TRAINMASTER_FAULT_SEED", str(random.SystemRandom().randrange(10**6))))
TARGETS = ("trainer", "hold", "supervisor", "follower", "tmux")
# Steps of some 10 ms: longer than all the kills take.
STEPS = 150 * (KILLS + 6)
MODEL = "{n_layer: 2, n_head: 2, d_model: 64, dropout: 0.1}"


def test_a_run_survives_whatever_is_killed_with_nothing_lost_or_doubled(
    command: CommandLine, tmp_path: Path
) -> None:
    print(f"seed {SEED}, {KILLS} kills")
    spec = tmp_path / "spec.yaml"
    changes = {"steps": str(STEPS), "checkpoint": "{every: 50, keep_latest: 3}", "model": MODEL}
    changes |= {"batch": "{tokens: 512}", "recovery": "{max_restarts: 50}"}
    spec.write_text(small_spec(tmp_path, **changes))
    undisturbed = _train(command, spec, kills=0)
    disturbed = _train(command, spec, kills=KILLS)

    status = command("status", disturbed, "--detail")
    assert (status["state"], status["step"]) == ("completed", STEPS)
    for key in ("loss", "grad_norm", "val_loss"):
        expected = _series(command, undisturbed, key)
        assert _series(command, disturbed, key) == expected, key
        if key != "val_loss":
            assert expected["steps"] == list(range(1, STEPS + 1))
    assert_mirror_equals_the_box(command, disturbed)
    before = _contents(command.home)
    command("replay")
    assert _contents(command.home) == before
    checkpoints = command("checkpoints", disturbed, "--verify")
    assert checkpoints["resume_from"] == STEPS
    assert not checkpoints["skipped"]


def _train(command: CommandLine, spec: Path, kills: int) -> str:
    """Launch, kill at random moments while it runs, wait for the end; the run's id."""
    chosen = random.Random(SEED)
    run: str = command("launch", str(spec))["run_id"]
    follower = command.start("wait", run, "--timeout", str(LONGEST_S), "--json")
    targets = [TARGETS[number % len(TARGETS)] for number in range(kills)]
    chosen.shuffle(targets)
    for target in targets:
        let_it_run(chosen.uniform(0.1, 2.5))
        print(f"kill {target} at step {_box_step(command, run)}")
        if target == "follower":
            kill(follower.pid)
            follower.communicate()
            follower = command.start("wait", run, "--timeout", str(LONGEST_S), "--json")
        elif target == "tmux":
            subprocess.run(["tmux", "kill-server"], env=command.environment, capture_output=True)
        else:
            _kill_process(command, run, target)
    output, errors = follower.communicate(timeout=LONGEST_S + 30)
    assert follower.returncode == 0, (output, errors)
    assert json.loads(output)["event"] == "completed", output
    return run


def _kill_process(command: CommandLine, run: str, target: str) -> None:
    """Kill one of the run's processes as soon as there is one, unless the run is over before."""
    folder = command.folder(run)

    def found() -> int | None:
        over = any(b'"state":"completed"' in line for line in folder.journal.open("rb"))
        living = processes_of(folder)
        # A trainer whose hold was killed has none any more: then it is the trainer's turn.
        other = living.get("trainer") if target == "hold" else None
        return -1 if over else living.get(target, other)

    # Restarts without progress wait longer and longer, which counts as being down.
    pid = wait_until(found, f"a {target}", LONGEST_S)
    if pid > 0:
        kill(pid)


def _box_step(command: CommandLine, run: str) -> int:
    newest = max((command.folder(run).root / "attempts").glob("*/events.jsonl"), default=None)
    lines = newest.read_bytes().splitlines()[-3:] if newest else []
    return max(
        (json.loads(line).get("step", 0) for line in lines if line.endswith(b"}")), default=0
    )


def _series(command: CommandLine, run: str, key: str) -> dict[str, Any]:
    answer = command("metrics", run, "--key", key, "--all")
    series: dict[str, Any] = answer["runs"][run][key]
    return series


def _contents(home: Path) -> list[tuple[Any, ...]]:
    """All that the derived database says, but for its internal numbers."""
    store = MetricsStore(home / "metrics.db")
    queries = (
        "SELECT run_id, placement, attempt, segment, key, x, t, value, flag"
        " FROM points JOIN series USING (sid) ORDER BY 1, 2, 3, 4, 5, 6",
        "SELECT * FROM events ORDER BY 1, 2, 3, 4",
        "SELECT * FROM folds ORDER BY 1, 2, 3",
        "SELECT * FROM sources ORDER BY 1, 2, 3",
    )
    rows = [row for query in queries for row in store.connection.execute(query)]
    store.close()
    return rows
