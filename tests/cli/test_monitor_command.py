"""`trainmaster monitor` as a process: killed at any moment, reported to end, left by its reader."""

from __future__ import annotations

import os
import random
import signal
import subprocess
from collections import Counter
from contextlib import suppress
from functools import partial

import pytest
from support.core.journal_records import attempt_starting, state
from support.runs.planted_journal import PlantedJournal
from support.runs.planted_runs import finding
from support.runs.running_run import CommandLine, let_it_run, wait_until

from trainmaster.sync.workspace import Workspace

pytestmark = pytest.mark.slow

_KILLS = int(os.environ.get("TRAINMASTER_FAULT_KILLS", "2"))
_SEED = int(os.environ.get("TRAINMASTER_FAULT_SEED", str(random.SystemRandom().randrange(10**6))))


class Heard:
    """What monitors printed, as lines."""

    def __init__(self, command: CommandLine) -> None:
        self._command = command
        self._printed = b""

    @property
    def lines(self) -> list[str]:
        return self._printed.decode().splitlines()

    def start(self, *options: str) -> subprocess.Popen[str]:
        process = self._command.start("monitor", *options)
        assert process.stdout is not None
        os.set_blocking(process.stdout.fileno(), False)
        return process

    def take(self, process: subprocess.Popen[str]) -> int:
        """Read what it has printed by now."""
        assert process.stdout is not None
        with suppress(BlockingIOError):
            while more := os.read(process.stdout.fileno(), 1 << 16):
                self._printed += more
        return len(self.lines)

    def has(self, process: subprocess.Popen[str], lines: int) -> bool:
        return self.take(process) >= lines

    def end(self, process: subprocess.Popen[str], number: int) -> int:
        process.send_signal(number)
        process.wait(60)
        self.take(process)
        return process.returncode


def test_each_event_is_printed_once_whenever_monitors_are_killed(
    workspace: Workspace, command: CommandLine
) -> None:
    chosen, heard, count = random.Random(_SEED), Heard(command), 0
    print(f"seed {_SEED}")
    run = PlantedJournal(workspace, "gpt")
    run.write(attempt_starting(1), state("running"))
    monitor = heard.start()
    wait_until(workspace.home.monitor("default").is_file, "the first monitor")
    for _ in range(_KILLS):
        run.write(*(finding(f"{count + n:08x}") for n in range(20)))
        wait_until(partial(heard.has, monitor, count + 1), "a line")
        let_it_run(chosen.uniform(0.0, 0.002))
        heard.end(monitor, signal.SIGKILL)
        run.write(finding(f"{count + 20:08x}"))
        count += 21
        monitor = heard.start()
    wait_until(partial(heard.has, monitor, count), "the last line")
    assert heard.end(monitor, signal.SIGTERM) == 0
    assert monitor.stderr is not None
    assert monitor.stderr.read() == ""
    steps = Counter(heard.lines)
    assert len(heard.lines) == count, steps.most_common(3)
    assert all(" gpt finding cuda_oom at step 41" in one for one in heard.lines)
    assert all(one.endswith(f"diagnose {run.run_id}") for one in heard.lines)


def test_a_monitor_ends_when_its_reader_does(workspace: Workspace, command: CommandLine) -> None:
    PlantedJournal(workspace, "gpt").write(attempt_starting(1), state("running"))
    monitor = Heard(command).start("--json", "--name", "other")
    wait_until(workspace.home.monitor("other").is_file, "the monitor")
    assert monitor.stdout is not None
    monitor.stdout.close()
    assert monitor.wait(60) == 0
