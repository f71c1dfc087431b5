"""Alerts of a real training reach a real receiver, whoever is killed meanwhile."""

from __future__ import annotations

import os
import random
from pathlib import Path

from receivers import Receiver, receiving
from running import CommandLine, kill, let_it_run, processes_of, small_spec, wait_until

SEED = int(os.environ.get("TRAINMASTER_FAULT_SEED", str(random.SystemRandom().randrange(10**6))))
KILLS = int(os.environ.get("TRAINMASTER_FAULT_KILLS", "4"))
# Steps of some 10 ms: longer than all the kills take.
STEPS = 250 * (KILLS + 2)
_ALERTS = (
    "[{name: going, when: 'loss > 0.1 for 3', to: ops}, {name: done, when: state completed, "
    "to: ops}, {name: evaluated, when: val_loss > 0.1, to: ops, severity: info}]"
)
NAMES = ("going", "done", "evaluated")


def spec_for(command: CommandLine, folder: Path, receiver: Receiver, sender: str) -> str:
    command.home.mkdir(exist_ok=True)
    (command.home / "settings.yaml").write_text(
        f"destinations: {{ops: {{kind: webhook, url: '{receiver.url}', sender: {sender}}}}}\n"
    )
    spec = folder / "spec.yaml"
    changes = {"steps": str(STEPS), "checkpoint": "{every: 500, keep_latest: 2}"}
    changes["eval"] = "{every_steps: 200, batches: 1}"
    spec.write_text(small_spec(folder, alerts=_ALERTS, **changes))
    return str(spec)


def test_the_box_tells_everything_though_the_operators_side_is_gone_and_it_is_killed_itself(
    command: CommandLine, tmp_path: Path
) -> None:
    print(f"seed {SEED}, {KILLS} kills")
    chosen = random.Random(SEED)
    refuses = {number for number in range(20) if chosen.random() < 0.3}
    with receiving(lambda number: 500 if number in refuses else 200) as receiver:
        run = command("launch", spec_for(command, tmp_path, receiver, "box"))["run_id"]
        folder = command.folder(run)
        for _ in range(KILLS):
            supervisor = wait_until(
                lambda: processes_of(folder).get("supervisor"), "the supervisor"
            )
            let_it_run(chosen.uniform(0.0, 1.5))
            kill(supervisor)
            command("tick")
        # Nobody looks from here on: what is told is told by the box alone.
        wait_until(lambda: _all(receiver), "every alert", 120.0)
        command("wait", run, "--until", "end", "--timeout", "120")
        told = command("alerts", "list", run)
    assert_one_id_each(receiver)
    assert {row["sender"] for row in told["messages"]} == {"box"}
    assert b"very-secret-path" not in folder.journal.read_bytes()
    assert not folder.alerts.exists()


def test_the_operators_side_tells_everything_though_it_is_killed_again_and_again(
    command: CommandLine, tmp_path: Path
) -> None:
    print(f"seed {SEED}, {KILLS} kills")
    chosen = random.Random(SEED)
    with receiving() as receiver:
        run = command("launch", spec_for(command, tmp_path, receiver, "operator"))["run_id"]
        for _ in range(KILLS):
            waiting = command.start("wait", run, "--timeout", "120", "--json")
            step = chosen.randrange(1, STEPS)
            command("wait", run, "--until", f"step:{step},end", "--timeout", "120", code=0)
            waiting.kill()
            waiting.communicate()
        command("wait", run, "--until", "end", "--timeout", "120")

        def told() -> bool:
            command("tick")
            return _all(receiver)

        wait_until(told, "every alert", 120.0)
        rows = command("alerts", "list", run)["messages"]
    assert_one_id_each(receiver)
    assert {(row["sender"], row["phase"]) for row in rows} == {("operator", "sent")}


def assert_one_id_each(receiver: Receiver) -> None:
    for name in NAMES:
        assert len({body["id"] for body in receiver.of(name)}) == 1, name


def _all(receiver: Receiver) -> bool:
    return all(receiver.of(name) for name in NAMES)
