"""Identifies a process: a pid alone names any process that has it now.

A process is (pid, start time, epoch), and an epoch is the boot id, the start of pid 1 and the pid
namespace: after a reboot, or in another container, no stored pid means anything.
"""

from __future__ import annotations

import errno
import os
import signal
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from trainer_runtime.core.decoding import Fields, JsonRecord

# Fields of /proc/PID/stat behind the name.
_STATE_FIELD, _PARENT_FIELD, _SESSION_FIELD, _START_FIELD, _STATUS_FIELD = 0, 1, 3, 19, 49
_GONE_STATES = frozenset({"Z", "X", "x"})


@dataclass(frozen=True, slots=True)
class ProcessIdentity(JsonRecord):
    """`start_ticks`: clock ticks between boot and start, as in /proc/PID/stat."""

    pid: int
    start_ticks: int
    epoch: str

    @classmethod
    def from_dict(cls, data: Mapping[str, object]) -> ProcessIdentity:
        return cls.of(Fields(data, "process"))


def current_epoch() -> str:
    """The epoch that this process lives in."""
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    init = stat_fields(1)
    return f"{boot}:{init[_START_FIELD] if init else 0}:{os.readlink('/proc/self/ns/pid')}"


def identify(pid: int) -> ProcessIdentity | None:
    """The identity of a process that lives now; None if it is gone or a zombie."""
    fields = stat_fields(pid)
    if fields is None or fields[_STATE_FIELD] in _GONE_STATES:
        return None
    return ProcessIdentity(pid, int(fields[_START_FIELD]), current_epoch())


def is_alive(process: ProcessIdentity) -> bool:
    """Whether this very process still runs; zombies count as gone."""
    return identify(process.pid) == process


def send(process: ProcessIdentity, number: signal.Signals) -> bool:
    """Signal this very process; False if it is gone.

    Between the check and the signal a pid could in theory be reused; a pidfd, opened before the
    check, rules that out.
    """
    try:
        descriptor = os.pidfd_open(process.pid)
    except OSError as error:
        return error.errno == errno.ENOSYS and _send_by_pid(process, number)
    try:
        if not is_alive(process):
            return False
        signal.pidfd_send_signal(descriptor, number)
    except OSError:
        return False
    finally:
        os.close(descriptor)
    return True


def _send_by_pid(process: ProcessIdentity, number: signal.Signals) -> bool:
    """For kernels before 5.3, which have no pidfd."""
    if not is_alive(process):
        return False
    try:
        os.kill(process.pid, number)
    except OSError:
        return False
    return True


def session_members(leader: ProcessIdentity) -> list[ProcessIdentity]:
    """The live processes of the session that `leader` leads, itself included.

    Empty once the leader is gone: its number may then lead somebody else's session.
    """
    if not is_alive(leader):
        return []
    members = []
    for pid in process_ids():
        fields = stat_fields(pid)
        if fields is None or int(fields[_SESSION_FIELD]) != leader.pid:
            continue
        process = identify(pid)
        if process is not None and process.start_ticks >= leader.start_ticks:
            members.append(process)
    return members


def descendants(pid: int) -> list[ProcessIdentity]:
    """The live processes that a process has started, however many generations on; parents first.

    Whose parent has gone is among them only where `pid` adopts orphans.
    """
    children: dict[int, list[int]] = {}
    for other in process_ids():
        fields = stat_fields(other)
        if fields is not None:
            children.setdefault(int(fields[_PARENT_FIELD]), []).append(other)
    processes: list[ProcessIdentity] = []
    waiting = children.get(pid, [])
    for child in waiting:  # grows as generations are added
        process = identify(child)
        if process is not None:
            processes.append(process)
        waiting.extend(children.get(child, ()))
    return processes


def wait_status(process: ProcessIdentity) -> int | None:
    """How a process ended that its parent has not waited for yet, as by `wait`; else None."""
    fields = stat_fields(process.pid)
    if fields is None or int(fields[_START_FIELD]) != process.start_ticks:
        return None
    return int(fields[_STATUS_FIELD]) if fields[_STATE_FIELD] == "Z" else None


def carriers(marker: str) -> list[ProcessIdentity]:
    """The live processes with `marker` (`NAME=value`) in the environment they were started with."""
    wanted = marker.encode()
    processes = []
    for pid in process_ids():
        process = identify(pid)
        if process is None:
            continue
        try:
            environment = Path(f"/proc/{pid}/environ").read_bytes()
        except OSError:
            continue
        if wanted in environment.split(b"\0"):
            processes.append(process)
    return processes


def process_ids() -> Iterator[int]:
    """The pids of all processes that are seen from here."""
    return (int(name) for name in os.listdir("/proc") if name.isdigit())


def stat_fields(pid: int) -> list[str] | None:
    """What the kernel says of a process behind its name: the state first, its parent second."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except OSError:
        return None
    # The command's name stands in parentheses and may hold anything, parentheses included.
    return text[text.rfind(")") + 2 :].split()
