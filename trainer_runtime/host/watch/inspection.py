"""Inspects an attempt that seems to hang: its processes, their stacks, the GPUs, the verdict."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from trainer_runtime.core.config import RunConfig
from trainer_runtime.core.diagnosis.stacks.frames import read_stacks, top
from trainer_runtime.core.diagnosis.stacks.places import locate
from trainer_runtime.core.diagnosis.stacks.report import InspectionReport, ProcessReport, RankReport
from trainer_runtime.core.diagnosis.stacks.verdict import Pace, Process, Rank, Verdict, judge
from trainer_runtime.core.files.durable import write_atomic
from trainer_runtime.core.protocol.masking import Mask
from trainer_runtime.host.files.configs import config_of
from trainer_runtime.host.files.layout import RunFolder
from trainer_runtime.host.files.secret_file import secret_values
from trainer_runtime.host.processes.process_state import ProcessState
from trainer_runtime.host.processes.quick_commands import answer_of
from trainer_runtime.host.watch.pace import last_steps, read_pace
from trainer_runtime.host.watch.stacks import Taken, as_text, take
from trainer_runtime.host.watch.telemetry import parse_gpus, start_gpu_query

_WITHIN_S = 8.0
SAMPLES = 3
WITHIN_S = 20.0
_BETWEEN_S = 0.7
_GPU_WITHIN_S = 4.0
ATTACHED = "attached"
_FRAMES, _WORKER_FRAMES, _WORKERS = 12, 4, 8
_LARGEST_TEXT = 256 << 10  # characters


@dataclass(slots=True)
class Inspection:
    """What was seen. `text`: the stacks of the last sample, masked. `steps`: each rank's last one.

    `py_spy`: its outcome where a process did not answer by itself: `used`, `not_allowed`,
    `not_installed`, `refused`.
    """

    attempt: int
    ranks: list[Rank]
    world_size: int | None
    pace: Pace
    verdict: Verdict
    gpus: dict[str, Any]
    text: str
    py_spy: str | None = None
    steps: Mapping[int, int] = field(default_factory=dict)


@dataclass(slots=True)
class _Seen:
    """A process over all samples."""

    state: ProcessState
    first_s: float
    first_cpu_s: float
    last_s: float
    texts: list[str] = field(default_factory=list)


def inspect(
    run: RunFolder, attempt: int, *, allow_py_spy: bool = False, within_s: float = WITHIN_S
) -> Inspection:
    """Sample the attempt's processes three times, and judge what they are doing.

    A foreign process (of an attached run) is read by py-spy only with `allow_py_spy`; ours are
    wherever py-spy is installed and they don't answer.

    Raises:
        OSError: the stacks can't be written into the attempt's folder.
    """
    deadline = time.monotonic() + within_s
    query = start_gpu_query()
    before = read_pace(run.attempt(attempt).events, time.time())
    config = config_of(run)
    allowed = allow_py_spy or not config.is_attached
    seen, outside = _sample(run, attempt, allowed, deadline)
    pace = read_pace(run.attempt(attempt).events, time.time(), before.step)
    ranks = _ranks(list(seen.values()))
    world_size = (
        max((seen_process.state.world_size or 0 for seen_process in seen.values()), default=0)
        or None
    )
    text = as_text(
        [
            Taken(seen_process.state, seen_process.texts[-1] if seen_process.texts else "")
            for seen_process in seen.values()
        ]
    )
    text = Mask(secret_values(run).values()).text(text)
    if seen:
        write_atomic(run.attempt(attempt).stacks, text.encode())
    verdict = judge(ranks, pace, world_size)
    gpus = _gpus(query, deadline)
    steps = last_steps(run.attempt(attempt).train_log, _pattern(config))
    if pace.step is not None:
        steps[0] = pace.step
    return Inspection(attempt, ranks, world_size, pace, verdict, gpus, text, outside, steps)


def _pattern(config: RunConfig) -> str | None:
    """The shape of the log's lines, where it was taught."""
    described = config.script or config.attached
    return None if described is None else described.pattern


def report(inspection: Inspection) -> InspectionReport:
    """An inspection as it is sent away."""
    return InspectionReport(
        attempt=inspection.attempt,
        world_size=inspection.world_size,
        pace=inspection.pace,
        verdict=inspection.verdict,
        ranks=tuple(
            _report_rank(rank, inspection.steps.get(rank.rank)) for rank in inspection.ranks
        ),
        gpus=inspection.gpus,
        py_spy=inspection.py_spy,
        stacks=inspection.text[:_LARGEST_TEXT],
    )


def _report_rank(rank: Rank, step: int | None) -> RankReport:
    return RankReport(
        rank=rank.rank,
        step=step,
        at=locate(rank.process.main).place.value,
        process=_report_process(rank.process, _FRAMES),
        workers=tuple(
            _report_process(worker, _WORKER_FRAMES) for worker in rank.workers[:_WORKERS]
        ),
    )


def _report_process(process: Process, frames: int) -> ProcessReport:
    blocked = [f"{call} {target}" for call, target, _ in process.blocked]
    return ProcessReport(
        pid=process.pid,
        state=process.state,
        cpu_share=process.cpu_share,
        samples=len(process.samples),
        moves=process.changes_stack,
        frames=tuple(top(process.main, frames)),
        blocked=tuple(blocked[:_WORKER_FRAMES]),
    )


def _sample(
    run: RunFolder, attempt: int, allowed: bool, deadline: float
) -> tuple[dict[int, _Seen], str | None]:
    seen: dict[int, _Seen] = {}
    outside: str | None = None
    for number in range(SAMPLES):
        if number:
            if not seen or time.monotonic() + _BETWEEN_S > deadline:
                break
            time.sleep(_BETWEEN_S)
        taken = take(run, attempt, max(1.0, deadline - time.monotonic()))
        trainers = {state.pid for state in _mains([stack.process for stack in taken]).values()}
        for stack in taken:
            text = stack.text
            if not text and stack.process.pid in trainers and outside in (None, "used"):
                text, outside = _from_outside(stack.process, allowed)
            _note(seen, stack.process, text)
    return seen, outside


def _from_outside(process: ProcessState, allowed: bool) -> tuple[str, str]:
    if not allowed:
        return "", "not_allowed"
    program = find_py_spy(process.pid)
    if program is None:
        return "", "not_installed"
    text = spy(program, process.pid)
    return text, "used" if text else "refused"


def _note(seen: dict[int, _Seen], process: ProcessState, text: str) -> None:
    now = time.monotonic()
    seen_process = seen.setdefault(process.pid, _Seen(process, now, process.cpu_s, now))
    seen_process.state, seen_process.last_s = process, now
    if text:
        seen_process.texts.append(text)


def _ranks(seen: Sequence[_Seen]) -> list[Rank]:
    by_pid = {seen_process.state.pid: seen_process for seen_process in seen}
    mains = _mains([seen_process.state for seen_process in seen])
    ranks = []
    for rank, main in sorted(mains.items()):
        workers = [
            seen_process
            for seen_process in seen
            if seen_process.state.pid != main.pid
            and _descends(seen_process.state, main.pid, by_pid)
        ]
        processes = tuple(_process(seen_process) for seen_process in workers)
        ranks.append(Rank(rank, _process(by_pid[main.pid]), processes))
    return ranks


def _mains(states: Sequence[ProcessState]) -> dict[int, ProcessState]:
    """The trainer of each rank: of the processes that state a rank, the one whose parent is not of
    the same; if none states one, the process that none of them has started."""
    by_pid = {state.pid: state for state in states}
    ranked = [state for state in states if state.rank is not None]
    if not ranked:
        roots = [state for state in states if state.parent not in by_pid]
        return dict(enumerate(roots[:1]))
    mains: dict[int, ProcessState] = {}
    for state in ranked:
        parent = by_pid.get(state.parent)
        if state.rank is not None and (parent is None or parent.rank != state.rank):
            main = mains.get(state.rank)
            if main is None or (main.stacks is None and state.stacks is not None):
                mains[state.rank] = state
    return mains


def _descends(state: ProcessState, pid: int, by_pid: dict[int, _Seen]) -> bool:
    passed: set[int] = set()
    while state.parent in by_pid and state.parent not in passed:
        if state.parent == pid:
            return True
        passed.add(state.parent)
        state = by_pid[state.parent].state
    return False


def _process(seen: _Seen) -> Process:
    state = seen.state
    passed_s = seen.last_s - seen.first_s
    used_s = state.cpu_s - seen.first_cpu_s
    main = state.threads[0] if state.threads else None
    return Process(
        state.pid,
        samples=tuple(threads for text in seen.texts if (threads := read_stacks(text))),
        state=main.state if main else "?",
        cpu_share=round(used_s / passed_s, 2) if passed_s > 0 else 0.0,
        blocked=tuple(
            (thread.call, thread.target, thread.state)
            for thread in state.threads
            if thread.call is not None and thread.target is not None
        ),
    )


def _gpus(query: subprocess.Popen[bytes] | None, deadline: float) -> dict[str, Any]:
    """What nvidia-smi answers; nothing where it has not answered in time."""
    if query is None:
        return {}
    try:
        output, _ = query.communicate(
            timeout=min(_GPU_WITHIN_S, max(0.1, deadline - time.monotonic()))
        )
    except subprocess.TimeoutExpired:
        query.kill()
        print("nvidia-smi does not answer", file=sys.stderr)
        return {}
    return parse_gpus(output.decode(errors="replace"))


def find_py_spy(pid: int) -> str | None:
    """The py-spy of this machine: on the path, beside our interpreter, or beside the process's.

    Where a process says that its interpreter lies is its own word: what stands there is only run
    where it belongs to this user or to root.
    """
    ours = shutil.which("py-spy") or shutil.which("py-spy", path=os.path.dirname(sys.executable))
    if ours is not None:
        return ours
    try:
        command = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")[0].decode()
    except (OSError, UnicodeDecodeError):
        command = ""
    if not command.startswith("/"):
        return None
    theirs = shutil.which("py-spy", path=os.path.dirname(command))
    return theirs if theirs is not None and _is_safe(theirs) else None


def spy(program: str, pid: int) -> str:
    """The process's stacks as JSON, without pausing it; empty where they can't be had."""
    command = [program, "dump", "--json", "--nonblocking", "--pid", str(pid)]
    for _ in range(2):  # a process that runs on may change under its reader
        done = answer_of(command, within_s=_WITHIN_S)
        if done is None:
            return ""
        if done.returncode == 0:
            return done.stdout.decode(errors="replace")
    return ""


def _is_safe(program: str) -> bool:
    """Whether only this user or root could have put it there."""
    try:
        statuses = (os.stat(program), os.stat(os.path.dirname(program)))
    except OSError:
        return False
    return all(
        status.st_uid in (0, os.geteuid()) and not status.st_mode & stat.S_IWOTH
        for status in statuses
    )
