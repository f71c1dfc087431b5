from __future__ import annotations

import os
from pathlib import Path

import pytest
from support.host.hanging_processes import Hanging
from support.runs.running_run import wait_until

from trainer_runtime.host.processes.process_state import states
from trainer_runtime.host.watch.stacks import Taken, as_text, take

_WAITS = """
import pathlib, threading
def wait_for_ever():
    pathlib.Path("ready").touch()
    threading.Event().wait()
wait_for_ever()
"""
_FORKS = """
import os, pathlib, time
def serve():
    pathlib.Path("forked").touch()
    time.sleep(600)
if os.fork() == 0:
    serve()
def wait_for_ever():
    pathlib.Path("ready").touch()
    time.sleep(600)
wait_for_ever()
"""


def answers(hanging: Hanging) -> list[Taken]:
    """Once all have answered: whom the machine holds up may miss the second that it is given."""

    def found() -> list[Taken] | None:
        taken = take(hanging.run, 1)
        return taken if taken and all(one.text for one in taken) else None

    taken: list[Taken] = wait_until(found, "the answers of all")
    return taken


def test_every_rank_reports_its_stack(tmp_path: Path) -> None:
    with Hanging(tmp_path) as hanging:
        for rank in range(3):
            hanging.start(
                _WAITS.replace('"ready"', f'"ready{rank}"'), environment={"RANK": str(rank)}
            )
        for rank in range(3):
            hanging.wait_for(f"ready{rank}")
        taken = {one.process.rank: one.text for one in answers(hanging)}
        assert sorted(rank for rank in taken if rank is not None) == [0, 1, 2]
        assert all(text.count("in wait_for_ever") == 1 for text in taken.values())
        assert all(f"train{rank}.py" in taken[rank] for rank in range(3))


def test_a_forked_worker_answers_for_itself(tmp_path: Path) -> None:
    with Hanging(tmp_path) as hanging:
        trainer = hanging.start(_FORKS)
        hanging.wait_for("ready")
        hanging.wait_for("forked")
        texts = {one.process.pid: one.text for one in answers(hanging)}
        assert "in wait_for_ever" in texts.pop(trainer.pid)
        (worker,) = texts.values()
        assert "in serve" in worker and "in wait_for_ever" not in worker


def test_a_process_without_a_handler_is_left_alone(tmp_path: Path) -> None:
    with Hanging(tmp_path) as hanging:
        trainer = hanging.start(_WAITS, answers=False)
        hanging.wait_for("ready")
        assert [one.text for one in take(hanging.run, 1)] == [""]
        assert trainer.poll() is None


def test_a_later_dump_does_not_repeat_an_earlier_one(tmp_path: Path) -> None:
    with Hanging(tmp_path) as hanging:
        hanging.start(_WAITS)
        hanging.wait_for("ready")
        for _ in range(2):
            assert as_text(answers(hanging)).count("in wait_for_ever") == 1


@pytest.mark.parametrize("missing", ["no process", "no attempt"])
def test_where_nothing_lives_there_are_no_stacks(tmp_path: Path, missing: str) -> None:
    with Hanging(tmp_path) as hanging:
        assert take(hanging.run, 1 if missing == "no process" else 7) == []


def test_a_stopped_process_costs_a_second_and_not_the_others_answers(tmp_path: Path) -> None:
    with Hanging(tmp_path) as hanging:
        stopped = hanging.start(_WAITS, environment={"RANK": "1"})
        hanging.wait_for("ready")
        (hanging.run.root / "ready").unlink()
        hanging.start(_WAITS, environment={"RANK": "0"})
        hanging.wait_for("ready")
        os.kill(stopped.pid, 19)
        wait_until(lambda: state_of(stopped.pid) == "T", "it stands still")

        def by_rank() -> dict[int | None, str] | None:
            found = {one.process.rank: one.text for one in take(hanging.run, 1)}
            assert found[1] == ""
            return found if found[0] else None

        assert "in wait_for_ever" in wait_until(by_rank, "the other's answer")[0]


def state_of(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def test_the_kernel_reports_what_a_thread_waits_for(tmp_path: Path) -> None:
    script = """
import os, pathlib
os.mkfifo("pipe")
pathlib.Path("ready").touch()
os.open("pipe", os.O_RDONLY)
"""
    with Hanging(tmp_path) as hanging:
        trainer = hanging.start(script)
        hanging.wait_for("ready")
        (state,) = states(hanging.run, 1)
        assert state.pid == trainer.pid and state.rank == 0
        assert state.threads[0].state in "SRD"
