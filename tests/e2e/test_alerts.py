"""Alerts of a run reach a real receiver, whichever process is killed meanwhile."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest
from support.alerts.webhook_receiver import Receiver, receiving
from support.runs.light_run import lasting, light_spec
from support.runs.running_run import (
    LONGEST_S,
    CommandLine,
    kill,
    let_it_run,
    processes_of,
    wait_until,
)

from trainer_runtime.core.files.durable import is_locked
from trainer_runtime.host.files.layout import RunFolder

SEED = int(os.environ.get("TRAINMASTER_FAULT_SEED", str(random.SystemRandom().randrange(10**6))))
KILLS = int(os.environ.get("TRAINMASTER_FAULT_KILLS", "4"))
# Steps of some 25 ms: longer than all the kills take.
STEPS = 100 * (KILLS + 2)
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
    words = ("--every", "200", "--eval-every", "100", *lasting())
    spec.write_text(light_spec(folder, *words, steps=str(STEPS), alerts=_ALERTS))
    return str(spec)


@pytest.mark.long
def test_the_host_reports_everything_though_the_client_is_gone_and_it_is_killed_itself(
    command: CommandLine, tmp_path: Path
) -> None:
    print(f"seed {SEED}, {KILLS} kills")
    chosen = random.Random(SEED)
    refuses = {number for number in range(20) if chosen.random() < 0.3}
    with receiving(lambda number: 500 if number in refuses else 200) as receiver:
        run = command("launch", spec_for(command, tmp_path, receiver, "box"))["run_id"]
        folder = command.folder(run)
        for _ in range(KILLS):
            supervisor = wait_until(lambda: _supervisor(folder), "the supervisor")
            let_it_run(chosen.uniform(0.0, 1.5))
            if supervisor > 0:
                kill(supervisor)
                # A tick starts another one only once the lock is free.
                wait_until(lambda: not is_locked(folder.supervisor_lock), "its end")
            command("tick")
        # No client reads from here on: the host alone reports.
        wait_until(lambda: _all(receiver), "every alert", LONGEST_S)
        command("wait", run, "--until", "end", "--timeout", str(LONGEST_S))
        wait_until(lambda: not folder.alerts.exists(), "the addresses are removed")
        reported = command("alerts", "list", run)
    assert_one_id_each(receiver)
    assert {row["sender"] for row in reported["messages"]} == {"box"}
    assert b"very-secret-path" not in folder.journal.read_bytes()


@pytest.mark.long
def test_the_client_reports_everything_though_it_is_killed_again_and_again(
    command: CommandLine, tmp_path: Path
) -> None:
    print(f"seed {SEED}, {KILLS} kills")
    chosen = random.Random(SEED)
    with receiving() as receiver:
        run = command("launch", spec_for(command, tmp_path, receiver, "operator"))["run_id"]
        for _ in range(KILLS):
            waiting = command.start("wait", run, "--timeout", str(LONGEST_S), "--json")
            until = f"step:{chosen.randrange(1, STEPS)},end"
            command("wait", run, "--until", until, "--timeout", str(LONGEST_S), code=0)
            waiting.kill()
            waiting.communicate()
        command("wait", run, "--until", "end", "--timeout", str(LONGEST_S))

        def reported() -> bool:
            command("tick")
            return _all(receiver)

        def noted() -> set[tuple[str, str]]:
            rows = command("alerts", "list", run)["messages"]
            return {(row["sender"], row["phase"]) for row in rows}

        wait_until(reported, "every alert", LONGEST_S)
        # Its sender may be a process of its own, which notes it a little later.
        wait_until(lambda: noted() == {("operator", "sent")}, "every alert noted as sent")
    assert_one_id_each(receiver)


def assert_one_id_each(receiver: Receiver) -> None:
    for name in NAMES:
        assert len({body["id"] for body in receiver.of(name)}) == 1, name


def _supervisor(folder: RunFolder) -> int | None:
    """The supervisor's pid; -1 where there is none because the run is over."""
    journal = folder.journal.read_bytes() if folder.journal.exists() else b""
    over = b'"state":"completed"' in journal
    return processes_of(folder).get("supervisor", -1 if over else None)


def _all(receiver: Receiver) -> bool:
    return all(receiver.of(name) for name in NAMES)
