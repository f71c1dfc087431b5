from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from support.runs.running_run import wait_until

from trainer_runtime.host.processes.identity import (
    ProcessIdentity,
    carriers,
    current_epoch,
    identify,
    is_alive,
    send,
    session_members,
)

MARKER = f"TRAINMASTER_ATTEMPT=identity-{os.getpid()}/1"
_TWO_IN_A_SESSION = "import subprocess; subprocess.Popen(['sleep', '600']); input()"


@pytest.fixture
def process() -> Iterator[subprocess.Popen[bytes]]:
    """A process in a session of its own, with the marker, that waits for its end."""
    name, value = MARKER.split("=", 1)
    child = subprocess.Popen(
        ["sleep", "600"], env={**os.environ, name: value}, start_new_session=True
    )
    environ = Path(f"/proc/{child.pid}/environ")
    wait_until(environ.read_bytes, "its environment")  # empty while it is being started
    yield child
    child.kill()
    child.wait()


def identity_of(child: subprocess.Popen[bytes]) -> ProcessIdentity:
    found = identify(child.pid)
    assert found is not None
    return found


def test_a_living_process_is_known_again_also_from_json(process: subprocess.Popen[bytes]) -> None:
    found = identity_of(process)
    assert is_alive(found)
    assert ProcessIdentity.from_dict(found.to_dict()) == found
    assert found.epoch == current_epoch()


def test_another_process_under_the_same_number_is_not_the_same(
    process: subprocess.Popen[bytes],
) -> None:
    found = identity_of(process)
    assert not is_alive(replace(found, start_ticks=found.start_ticks - 1))
    assert not is_alive(replace(found, epoch="before the reboot"))


def test_nothing_is_signalled_that_fails_its_identity(process: subprocess.Popen[bytes]) -> None:
    found = identity_of(process)
    assert not send(replace(found, start_ticks=found.start_ticks + 1), signal.SIGKILL)
    assert not send(replace(found, epoch="another container"), signal.SIGKILL)
    assert is_alive(found)


def test_a_signal_reaches_its_process_and_is_refused_once_that_is_gone(
    process: subprocess.Popen[bytes],
) -> None:
    found = identity_of(process)
    assert send(found, signal.SIGTERM)
    process.wait()
    assert not send(found, signal.SIGTERM)
    assert not is_alive(found)


def test_a_zombie_counts_as_gone(process: subprocess.Popen[bytes]) -> None:
    found = identity_of(process)
    process.kill()
    wait_until(lambda: not is_alive(found), "the zombie is seen as gone")
    assert process.returncode is None  # nobody has waited for it: it is still in the table
    assert identify(process.pid) is None
    assert carriers(MARKER) == []


def test_a_number_that_nobody_has_is_nobody() -> None:
    assert identify(2**22 + 1) is None
    assert not send(ProcessIdentity(2**22 + 1, 1, current_epoch()), signal.SIGKILL)


def test_processes_with_the_marker_are_found_and_no_others(
    process: subprocess.Popen[bytes],
) -> None:
    assert carriers(MARKER) == [identity_of(process)]
    assert carriers(MARKER + "2") == []
    assert carriers(MARKER[:-1]) == []


def test_a_session_holds_its_leader_and_children_and_ends_with_the_leader() -> None:
    leader = subprocess.Popen(
        [sys.executable, "-c", _TWO_IN_A_SESSION], stdin=subprocess.PIPE, start_new_session=True
    )
    found = identity_of(leader)
    members = wait_until(
        lambda: len(members := session_members(found)) == 2 and members, "the child is there"
    )
    assert found in members
    assert identify(os.getpid()) not in members
    for member in members:
        send(member, signal.SIGKILL)
    leader.communicate()
    assert session_members(found) == []


def test_a_name_with_parentheses_and_spaces_is_no_riddle(tmp_path: object) -> None:
    code = (
        "import ctypes; ctypes.CDLL(None).prctl(15, b'a) R 1 (b', 0, 0, 0);"
        "print(flush=True); input()"
    )
    child = subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert child.stdout is not None and child.stdout.readline() == b"\n"
    assert is_alive(identity_of(child))
    child.kill()
    child.communicate()
