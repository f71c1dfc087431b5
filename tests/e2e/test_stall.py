"""A real training that comes to a standstill: the host ends it, and continues from its
checkpoint."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from support.runs.running_run import (
    LONGEST_S,
    CommandLine,
    begin_with,
    kill,
    processes_of,
    small_spec,
    standing_after,
    wait_until,
)

from trainer_runtime.core.files.durable import try_lock
from trainer_runtime.core.protocol.lines import decode
from trainer_runtime.host.files.layout import RunFolder
from trainer_runtime.host.processes.processes import BoxProcesses
from trainer_runtime.host.supervise.supervisor import Supervisor
from trainer_runtime.host.watch.stalls import stack_verdict
from trainer_runtime.host.watch.telemetry import Telemetry

_MINUTE_S = 60.0


class Hurried:
    """A supervisor of real processes whose minutes a test lets pass."""

    def __init__(self, run: RunFolder) -> None:
        self._run = run
        self._ahead_s = 0.0
        self._lock = wait_until(lambda: _lock_of(run), "the run's own supervisor is gone")
        self._supervisor = Supervisor(
            run,
            BoxProcesses(run.root),
            lambda: time.time() + self._ahead_s,
            Telemetry(run.root),
            window=False,
            inspect=stack_verdict,
        )

    def until(self, kind: str, *, minutes: int = 0) -> Mapping[str, Any]:
        """Let it work until its journal holds such an event, and let so many minutes pass."""

        def met() -> Mapping[str, Any] | None:
            if (reported := self._reported(kind)) is None:
                self._supervisor.tick()
                if self._ahead_s < minutes * _MINUTE_S:
                    self._ahead_s += _MINUTE_S
            return reported

        found: Mapping[str, Any] = wait_until(met, kind, bound_s=LONGEST_S)
        return found

    def close(self) -> None:
        self._supervisor.close()
        os.close(self._lock[0])

    def _reported(self, kind: str) -> Mapping[str, Any] | None:
        reported = [decode(line).document for line in self._run.journal.read_bytes().splitlines()]
        return next((event for event in reversed(reported) if event["kind"] == kind), None)


@pytest.mark.long
def test_a_trainer_that_stands_still_is_ended_and_continues_from_its_checkpoint(
    command: CommandLine, tmp_path: Path
) -> None:
    env = begin_with(tmp_path / "standing", standing_after(200, 1))
    launched = command("launch", small_spec(tmp_path, steps="400", env=env))
    run, since = launched["run_id"], ("--cursor", launched["cursor"])
    command("wait", run, "--until", "checkpoint", "--timeout", str(LONGEST_S), *since)
    folder = command.folder(run)
    found = processes_of(folder)
    os.kill(found["trainer"], signal.SIGSTOP)
    kill(found["supervisor"])
    hurried = Hurried(folder)
    stalled = hurried.until("finding", minutes=120)
    assert stalled["finding"]["code"] == "stall"
    ended = hurried.until("attempt_ended", minutes=120)
    assert (ended["attempt"], ended["reason"], ended["signal"]) == (1, "stall", signal.SIGKILL)
    assert "trainer" not in processes_of(folder)
    newest = max(int(path.name[5:]) for path in folder.checkpoints.glob("step-*"))
    assert newest >= ended["verified_step"]  # it may have stopped before it reported of its last
    planned = hurried.until("restart_planned")
    assert (planned["why"], planned["set"]) == ("stall", {})
    hurried.until("closed")  # its clock is ahead: nobody else is to continue from there
    hurried.close()

    command("replay")
    status = command("status", run, "--detail")
    first, second = status["attempts"]
    assert (first["reason"], second["why"], second["by"]) == ("stall", "stall", "policy:on_stall")
    assert second["started_at_step"] == newest
    assert _steps(command, run) == list(range(1, 401))


def _lock_of(run: RunFolder) -> tuple[int] | None:
    lock = try_lock(run.supervisor_lock)
    return None if lock is None else (lock,)


def _steps(command: CommandLine, run: str) -> Any:
    return command("metrics", run, "--key", "loss", "--all")["runs"][run]["loss"]["steps"]
