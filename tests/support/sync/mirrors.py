"""Checks that the client holds what the host wrote: byte for byte, every event once."""

from __future__ import annotations

import os
import time
from pathlib import Path

from support.runs.running_run import CommandLine, wait_until

from trainer_runtime.core.files.durable import try_lock
from trainer_runtime.core.protocol.lines import decode

_LEAVING_S = 120.0
# A command gives up its read of a host after ten seconds, also where those went to other tests.
_READ_S = 400.0
# Read by the program's parent on the host, which writes what it says into the events.
_OF_THE_PROGRAM = "reported.jsonl"


def assert_mirror_equals_the_host(command: CommandLine, run: str) -> None:
    """Every appended file of a run byte for byte, and every event of it exactly once."""
    box, mirror = command.folder(run).root, command.home / "mirror" / run / "p1"
    _await_the_last_line(command, run)
    names = [
        path.relative_to(box)
        for path in box.glob("attempts/*/*")
        if path.suffix != ".json"
        and path.name != _OF_THE_PROGRAM
        and not path.name.startswith(".")  # what a kill left half written
    ]
    assert names
    names.append(Path("supervisor.jsonl"))
    for name in names:
        mirrored = (mirror / name).read_bytes() if (mirror / name).exists() else b""
        assert mirrored == (box / name).read_bytes(), name
        if name.suffix == ".jsonl":
            whole = [line for line in (box / name).read_bytes().split(b"\n") if line[-1:] == b"}"]
            numbers = [decode(line).seq for line in whole]
            assert numbers == sorted(set(numbers)), name


def _await_the_last_line(command: CommandLine, run: str) -> None:
    """A supervisor on its way out may still write after the end that others wait for."""
    deadline = time.monotonic() + _LEAVING_S
    while (lock := try_lock(command.folder(run).supervisor_lock)) is None:
        assert time.monotonic() < deadline, "the supervisor does not end"
        time.sleep(0.05)
    os.close(lock)
    journal = Path("supervisor.jsonl")
    here = command.home / "mirror" / run / "p1" / journal
    there = command.folder(run).root / journal

    def is_here() -> bool:
        command("status", run)  # one read takes in everything, unless its bound passes before
        return here.exists() and here.stat().st_size >= there.stat().st_size

    wait_until(is_here, "the last line is here", _READ_S)
