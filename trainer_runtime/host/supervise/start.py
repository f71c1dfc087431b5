"""Keeps a supervisor running to the end of its run."""

from __future__ import annotations

import os
import select
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path

from trainer_runtime.core.files.durable import lock_within
from trainer_runtime.host.files.configs import config_of
from trainer_runtime.host.files.layout import RunFolder
from trainer_runtime.host.lease.deadlines import read_session
from trainer_runtime.host.lease.start_timer import start_timer
from trainer_runtime.host.nodes.hub import Hub
from trainer_runtime.host.nodes.member import obey, read_nodes
from trainer_runtime.host.nodes.node_processes import NodeProcesses
from trainer_runtime.host.processes.processes import BoxProcesses
from trainer_runtime.host.supervise.detach import report_running
from trainer_runtime.host.supervise.supervisor import Supervisor
from trainer_runtime.host.watch.stalls import stack_verdict
from trainer_runtime.host.watch.telemetry import Telemetry

POLL_S = 0.2
# After a tick that wrote to the journal: what follows from that is often due at once.
_SHORT_POLL_S = 0.01
_LOCK_WAIT_S = 0.25
_TIMER_EVERY_S = 10.0
# A disk that is full, or a folder that was taken away, may come back: try again, but not for ever.
_RETRY_S = 5.0
_RETRIES = 720


def supervise(folder: Path, report_to: int | None = None) -> int:
    """Supervise the run in `folder` until it has ended; 0 also where another one does already.

    `report_to`: the pipe of `start_detached`, which waits for the lock to be held.
    """
    run = RunFolder(folder)
    code = 0
    while code == 0 and (lock := lock_within(run.supervisor_lock, _LOCK_WAIT_S)) is not None:
        if report_to is not None:
            report_running(report_to)
            report_to = None
        nodes = read_nodes(run)
        if nodes is not None and nodes.is_member:
            code = obey(run, nodes)
            os.close(lock)
            break
        hub = None if nodes is None else Hub(run, nodes)
        supervisor = _supervisor(run, hub)
        code = _to_the_end(supervisor, folder)
        supervisor.close()
        if hub is not None:
            hub.close(leave=supervisor.is_over)
        os.close(lock)
        # A request made while the lock was held has started no other supervisor.
        if not supervisor.has_newer_request():
            break
    return code


def _supervisor(run: RunFolder, hub: Hub | None) -> Supervisor:
    telemetry = Telemetry(run.root)
    if config_of(run).is_attached:
        # It imports the log parser, which few runs need.
        from trainer_runtime.host.attach.attached_processes import AttachedProcesses

        processes = AttachedProcesses(run.root)
        return Supervisor(run, processes, time.time, telemetry, window=False)
    trainers = BoxProcesses(run.root)
    attended = read_session(run) is None  # nobody opens a window of a kernel
    make = partial(Supervisor, run, window=attended, inspect=stack_verdict)
    if hub is not None:
        all_nodes = NodeProcesses(run, trainers, hub)
        states, resize = all_nodes.nodes, all_nodes.resize
        return make(all_nodes, time.time, telemetry, nodes=states, resize=resize)
    return make(trainers, time.time, telemetry)


def _to_the_end(supervisor: Supervisor, folder: Path) -> int:
    failures, timer_due_s = 0, 0.0
    with _ends_of_children() as ends:
        while True:
            try:
                if time.monotonic() >= timer_due_s:  # the host's own timer may have been killed
                    start_timer(RunFolder(folder).host_root)
                    timer_due_s = time.monotonic() + _TIMER_EVERY_S
                known_lines = supervisor.journal_lines
                if supervisor.tick():
                    return 0
                failures = 0
                has_written = supervisor.journal_lines > known_lines
                _wait(ends, _SHORT_POLL_S if has_written else POLL_S)
            except OSError as error:
                if not folder.exists():
                    return 1
                failures += 1
                print(f"supervisor: {error}; trying again", file=sys.stderr, flush=True)
                if failures > _RETRIES:
                    return 1
                time.sleep(_RETRY_S)


@contextmanager
def _ends_of_children() -> Iterator[int]:
    """A descriptor that becomes readable whenever a child of this process ends."""
    readable, writable = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    handler = signal.signal(signal.SIGCHLD, lambda *_: None)  # without one, nothing is written
    before = signal.set_wakeup_fd(writable, warn_on_full_buffer=False)
    try:
        yield readable
    finally:
        signal.set_wakeup_fd(before)
        signal.signal(signal.SIGCHLD, handler)
        os.close(readable)
        os.close(writable)


def _wait(ends: int, seconds: float) -> None:
    """Wait for so long, or until a child ends; those that a tick has waited for don't count."""
    with suppress(BlockingIOError):
        os.read(ends, 4096)
    select.select([ends], [], [], seconds)
