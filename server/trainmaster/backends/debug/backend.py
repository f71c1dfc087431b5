"""The debug host as a backend: as any other, but that its trainers are threads of this process."""

from __future__ import annotations

import asyncio
import sys
import threading
import time
import traceback
from pathlib import Path
from types import FrameType

from trainer_runtime.core.diagnosis.stacks.frames import Frame, Thread
from trainer_runtime.core.diagnosis.stacks.report import InspectionReport
from trainer_runtime.core.diagnosis.stacks.verdict import Process, Rank, judge
from trainer_runtime.host.files.layout import RunFolder
from trainer_runtime.host.watch.inspection import SAMPLES, Inspection, report
from trainer_runtime.host.watch.pace import read_pace
from trainmaster.backends.debug.launcher import InProcessLauncher
from trainmaster.backends.debug.trainer import thread_name
from trainmaster.backends.hosted import HostedBackend
from trainmaster.backends.hosts import LocalHost

_BETWEEN_S = 0.1


class DebugBackend(HostedBackend):
    runs_no_models = "Runs of the debug host are played, and have no model."

    def __init__(self, host: LocalHost) -> None:
        super().__init__(host, InProcessLauncher())

    async def inspect(
        self, run_id: str, attempt: int, *, allow_py_spy: bool = False
    ) -> InspectionReport:
        events = RunFolder(Path(await self.folder(run_id))).attempt(attempt).events
        before = read_pace(events, time.time())
        samples: list[tuple[Thread, ...]] = []
        text = ""
        for _ in range(SAMPLES):
            frame = _frame(thread_name(run_id, attempt))
            if frame is not None:
                samples.append((_thread(frame),))
                text = "".join(traceback.format_stack(frame))
            await asyncio.sleep(_BETWEEN_S)
        ranks = [Rank(0, Process(0, tuple(samples)))] if samples else []
        pace = read_pace(events, time.time(), before.step)
        verdict = judge(ranks, pace)
        return report(Inspection(attempt, ranks, None, pace, verdict, {}, text))


def _frame(name: str) -> FrameType | None:
    """The frame of the thread of this name; None where there is none."""
    for thread in threading.enumerate():
        if thread.name == name and thread.ident is not None:
            return sys._current_frames().get(thread.ident)
    return None


def _thread(frame: FrameType) -> Thread:
    calls = traceback.extract_stack(frame)
    frames = [Frame(call.filename, call.lineno or 0, call.name) for call in reversed(calls)]
    return Thread(tuple(frames), "MainThread", current=True)
