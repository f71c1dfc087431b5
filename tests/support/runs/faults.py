"""What the fault loops share: a run that is struck at random, compared with one that isn't.

`TRAINMASTER_FAULT_KILLS` sets how many strikes (4), `TRAINMASTER_FAULT_SEED` which.
"""

from __future__ import annotations

import json
import os
import random
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from support.runs.light_run import lasting, light_spec
from support.runs.running_run import (
    LONGEST_S,
    CommandLine,
    kill,
    let_it_run,
    pace,
    processes_of,
    small_spec,
    wait_until,
)
from support.sync.mirrors import assert_mirror_equals_the_host

from trainer_runtime.core.protocol.lines import complete_lines

KILLS = int(os.environ.get("TRAINMASTER_FAULT_KILLS", "4"))
SEED = int(os.environ.get("TRAINMASTER_FAULT_SEED", str(random.SystemRandom().randrange(10**6))))
# Of the run that is struck, 25 ms each: longer than all the strikes take.
STEPS = 40 * (KILLS + 6)

Strike = Callable[[str], object]


def two_specs(folder: Path, **changes: str) -> tuple[Path, Path]:
    """One whose run nothing disturbs, and one of the same training whose run outlasts all strikes
    and comes back after each."""
    wanted = {"steps": str(STEPS), "checkpoint": "{every: 20, keep_latest: 3}"}
    wanted |= {"recovery": "{max_restarts: 50}", **changes}
    quick, struck = folder / "quick.yaml", folder / "struck.yaml"
    quick.write_text(small_spec(folder, **wanted))
    struck.write_text(small_spec(folder, **wanted, env=pace(folder)))
    return quick, struck


def two_light_specs(folder: Path, host: str) -> tuple[Path, Path]:
    """The same of a program without PyTorch, whose every value follows from all steps before."""
    changes = {"host": host, "steps": str(STEPS), "recovery": "{max_restarts: 50}"}
    quick, struck = folder / "quick.yaml", folder / "struck.yaml"
    words = ("--every", "20", "--eval-every", "20")
    quick.write_text(light_spec(folder, *words, **changes))
    struck.write_text(light_spec(folder, *words, *lasting(0.025), **changes))
    return quick, struck


def strikes_on(command: CommandLine, *targets: str) -> dict[str, Strike]:
    """Kills of a run's processes, by what is killed: `trainer`, `hold`, `supervisor`."""
    return {target: _killing(command, target) for target in targets}


def train(command: CommandLine, spec: Path, strikes: Mapping[str, Strike], count: int) -> str:
    """Launch, strike so many times at random moments while it runs, wait for its end; the run's id.

    Besides those of `strikes`, one of the targets is the operator's process that follows. About
    half of the strikes fall while the run comes on, the others wherever it is.
    """
    chosen = random.Random(SEED)
    run: str = command("launch", str(spec))["run_id"]
    follower = command.start("wait", run, "--timeout", str(LONGEST_S), "--json")
    every = ["follower", *strikes]
    targets = [every[number % len(every)] for number in range(count)]
    chosen.shuffle(targets)
    step = 0
    for target in targets:
        if chosen.random() < 0.5:
            wanted = min(step + 1, STEPS)
            wait_until(lambda wanted=wanted: _box_step(command, run) >= wanted, "steps", LONGEST_S)
        let_it_run(chosen.uniform(0.1, 2.5))
        step = _box_step(command, run)
        print(f"strike {target} at step {step}")
        if target == "follower":
            kill(follower.pid)
            follower.communicate()
            follower = command.start("wait", run, "--timeout", str(LONGEST_S), "--json")
        else:
            strikes[target](run)
    output, errors = follower.communicate(timeout=LONGEST_S + 30)
    assert follower.returncode == 0, (output, errors)
    assert json.loads(output)["event"] == "completed", output
    return run


def assert_the_same_was_learnt(command: CommandLine, undisturbed: str, disturbed: str) -> None:
    """Bit for bit, each step once, whatever happened on the way; and all of it was brought here."""
    status = command("status", disturbed, "--detail")
    assert (status["state"], status["step"]) == ("completed", STEPS)
    for key in ("loss", "grad_norm", "val_loss"):
        expected = _series(command, undisturbed, key)
        assert _series(command, disturbed, key) == expected, key
        if key != "val_loss":
            assert expected["steps"] == list(range(1, STEPS + 1))
    assert_mirror_equals_the_host(command, disturbed)
    checkpoints = command("checkpoints", disturbed, "--verify")
    assert checkpoints["resume_from"] == STEPS
    assert not checkpoints["skipped"], checkpoints["skipped"]


def _killing(command: CommandLine, target: str) -> Strike:
    """Kill one of the run's processes as soon as there is one, unless the run is over before."""

    def strike(run: str) -> None:
        folder = command.folder(run)

        def found() -> int | None:
            events = folder.journal.read_bytes() if folder.journal.exists() else b""
            over = b'"state":"completed"' in events
            living = processes_of(folder)
            # A trainer whose hold was killed has none any more: then it is the trainer's turn.
            other = living.get("trainer") if target == "hold" else None
            return -1 if over else living.get(target, other)

        # Restarts without progress wait longer and longer, which counts as being down.
        pid = wait_until(found, f"a {target}", LONGEST_S)
        if pid > 0:
            kill(pid)

    return strike


def _box_step(command: CommandLine, run: str) -> int:
    """The newest step that the host has recorded."""
    found = (command.folder(run).root / "attempts").glob("*/events.jsonl")
    newest = max(found, key=lambda path: int(path.parent.name), default=None)
    lines, _ = complete_lines(newest.read_bytes() if newest else b"")
    events = [json.loads(line) for line in lines[-3:] if line.endswith(b"}")]
    return max((event.get("step") or 0 for event in events), default=0)


def _series(command: CommandLine, run: str, key: str) -> dict[str, Any]:
    answer = command("metrics", run, "--key", key, "--all")
    series: dict[str, Any] = answer["runs"][run][key]
    return series
