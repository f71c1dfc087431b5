"""Profiles the next steps by PyTorch's own profiler, when the client asks for it.

Only rank 0 does. The request is a file in the run's folder, read at most once a second; it changes
nothing of what the training computes.
"""

from __future__ import annotations

import gc
import gzip
import json
import os
import resource
import shutil
import statistics
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile, record_function

from trainer_runtime.core.config import RunConfig
from trainer_runtime.core.config.curriculum import Curriculum
from trainer_runtime.core.decoding import decode_fields
from trainer_runtime.core.files.durable import write_atomic
from trainer_runtime.core.protocol.figures import rounded
from trainer_runtime.core.protocol.profile import (
    LARGEST_TRACE_BYTES,
    PROFILE,
    PROFILE_REQUEST,
    STEPS,
    TRACE,
    Profile,
    ProfileRequest,
)
from trainer_runtime.train.attempt.device import peak_memory
from trainer_runtime.train.loop.profile_summary import MARK, Kernel, Mark, Operator, summarise
from trainer_runtime.train.loop.speed import StepClock

_CHECKED_EVERY_S = 1.0
# A micro-batch has thousands of operators, and to read 40,000 takes 1.5 s of a processor.
_MOST_MICRO_BATCHES = 44
_LARGEST_REQUEST_BYTES = 4096
_USUAL_STEPS = 20


class StepProfiler:
    """Called after every step, with the run's folder as working folder."""

    def __init__(
        self, config: RunConfig, folder: Path, clock: StepClock, emit: Callable[..., None]
    ) -> None:
        """`folder`: the attempt's. `emit` writes an event."""
        self._attempt, self._curriculum = config.attempt.number, Curriculum.of(config)
        self._last_step = config.steps
        self._folder, self._clock, self._emit = folder, clock, emit
        self._due_s = 0.0
        self._answered: str | None = None
        self._usual: deque[float] = deque(maxlen=_USUAL_STEPS)
        self._taken: _Taken | None = None

    def step_ended(self, step: int) -> None:
        """Begins a profile if one is asked for, and ends it after its last step."""
        if self._taken is None:
            if self._clock.last_step_time_s:  # on a GPU the first one's is not known yet
                self._usual.append(self._clock.last_step_time_s)
            request = self._request(step)
            if request is not None:
                self._guarded(request, lambda: self._begin(request, step))
        elif step >= self._taken.last_step:
            taken = self._taken
            self._taken = None
            self._guarded(taken.request, lambda: self._end(taken))

    def close(self) -> None:
        """Ends a profile that the training's end came before."""
        if self._taken is not None:
            with suppress(RuntimeError):
                self._taken.stop()
            self._taken = self._clock.mark = None

    def _request(self, step: int) -> ProfileRequest | None:
        now_s = time.monotonic()
        if now_s < self._due_s or step + 2 > self._last_step:
            return None
        self._due_s = now_s + _CHECKED_EVERY_S
        try:
            with Path(PROFILE_REQUEST).open("rb") as file:
                text = file.read(_LARGEST_REQUEST_BYTES)
            request = ProfileRequest.of(decode_fields(text, PROFILE_REQUEST))
        except (OSError, ValueError):
            return None
        if request.attempt != self._attempt or request.id == self._answered:
            return None
        self._answered = request.id
        return request

    def _begin(self, request: ProfileRequest, step: int) -> None:
        accumulation = self._curriculum.shape(step + 1).accumulation
        steps = max(1, min(STEPS, _MOST_MICRO_BATCHES // accumulation - 1))
        # One more, in which the profiler warms up.
        last_step = min(step + 1 + steps, self._last_step)
        usual_s = statistics.median(self._usual) if self._usual else None
        self._taken = _Taken(request, step + 2, last_step, usual_s, self._clock)

    def _end(self, taken: _Taken) -> None:
        collects = gc.isenabled()
        gc.disable()  # it would go through all that was recorded again and again: twice the time
        try:
            taken.stop()
            answer = taken.answer(self._folder)
        finally:
            if collects:
                gc.enable()
        self._write(answer)

    def _guarded(self, request: ProfileRequest, act: Callable[[], None]) -> None:
        """A profile that fails ends no training: it is answered by the reason."""
        try:
            act()
        except (RuntimeError, ValueError, OSError) as error:
            self.close()
            self._write(Profile(request.id, problem=f"{type(error).__name__}: {error}"[:300]))
        self._clock.resume()

    def _write(self, answer: Profile) -> None:
        document = answer.to_dict()
        with suppress(OSError):  # a full disk: the event waits in memory
            write_atomic(self._folder / PROFILE, json.dumps(document).encode())
        self._emit("profile", **document)


class _Taken:
    """A profile that is being taken, of the steps `first_step` to `last_step`."""

    def __init__(
        self,
        request: ProfileRequest,
        first_step: int,
        last_step: int,
        usual_s: float | None,
        clock: StepClock,
    ) -> None:
        """Starts the profiler. Raises: RuntimeError: another one is at work."""
        self.request, self._first_step, self.last_step = request, first_step, last_step
        self._usual_s, self._clock = usual_s, clock
        self._marks: list[Mark] = []
        self._lost_s = 0.0
        self._began_s = time.perf_counter()
        activities = [ProfilerActivity.CPU]
        if torch.cuda.is_available():
            activities.append(ProfilerActivity.CUDA)
        self._profile = profile(activities=activities, acc_events=True)
        self._profile.start()
        clock.mark = self._mark
        self._lost_s = time.perf_counter() - self._began_s

    def stop(self) -> None:
        """Ends the measurement; reading what it recorded takes most of its time."""
        began_s = time.perf_counter()
        self._clock.mark = None
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        self._profile.stop()
        self._lost_s += time.perf_counter() - began_s

    def answer(self, folder: Path) -> Profile:
        """What was measured; writes the trace if it was asked for.

        Raises:
            ValueError: no step was whole.
        """
        began_s = time.perf_counter()
        operators, kernels = _read(self._profile.events())  # type: ignore[no-untyped-call]
        summary = summarise(operators, kernels, self._marks)
        trace, trace_bytes = False, None
        if self.request.keeps_trace:
            trace, trace_bytes = _write_trace(self._profile, folder / TRACE)
        del operators, kernels, self._profile
        gc.collect()  # operators refer to their parts and these to them
        ends = [mark.seconds for mark in self._marks if mark.kind == "end"]
        slower_s = 0.0 if self._usual_s is None else sum(ends) - len(ends) * self._usual_s
        lost_s = self._lost_s + time.perf_counter() - began_s
        return Profile(
            request=self.request.id,
            step=self._first_step,
            steps=summary.steps,
            device="cuda" if summary.gpu else "cpu",
            step_ms=rounded(summary.us / summary.steps / 1e3, 4),
            usual_step_ms=None if self._usual_s is None else rounded(self._usual_s * 1e3, 4),
            added_s=rounded(max(0.0, lost_s + slower_s), 3),
            host=summary.host,
            gpu=summary.gpu,
            operators=summary.operators,
            attention=summary.attention,
            kernels=summary.kernels,
            peak_memory_gib=_peak_memory_gib(),
            trace=trace,
            trace_bytes=trace_bytes,
        )

    def _mark(self, kind: str, seconds: float) -> None:
        with record_function(f"{MARK}{len(self._marks)}"):
            self._marks.append(Mark(kind, seconds))


def _read(events: Any) -> tuple[list[Operator], list[Kernel]]:
    """The profiler's events; annotations that it repeats on the GPU are left out."""
    on_host = [one for one in events if _is_on_host(one) and not one.is_async]
    places = {id(one): place for place, one in enumerate(on_host)}
    operators = [
        Operator(
            name=one.name,
            start_us=one.time_range.start,
            end_us=one.time_range.end,
            root=places.get(id(_root(one)), place),
            own_us=one.self_cpu_time_total,
            own_gpu_us=one.self_device_time_total,
        )
        for place, one in enumerate(on_host)
    ]
    return operators, list(_kernels(events))


def _kernels(events: Any) -> Iterator[Kernel]:
    for one in events:
        if not _is_on_host(one) and not getattr(one, "is_user_annotation", False):
            yield Kernel(one.name, one.time_range.start, one.time_range.end)


def _is_on_host(event: Any) -> bool:
    return bool(event.device_type.name == "CPU")


def _root(event: Any) -> Any:
    while event.cpu_parent is not None:
        event = event.cpu_parent
    return event


def _write_trace(taken: profile, path: Path) -> tuple[bool, int | None]:
    """Writes Chrome's form of the trace, compressed; whether it is there, and its size before."""
    plain, packed = (path.with_name(f".{name}") for name in (path.stem, path.name))
    size_bytes = None
    try:
        taken.export_chrome_trace(str(plain))
        size_bytes = plain.stat().st_size
        if size_bytes > LARGEST_TRACE_BYTES:
            return False, size_bytes
        with plain.open("rb") as source, gzip.open(packed, "wb", compresslevel=1) as target:
            shutil.copyfileobj(source, target)
        os.replace(packed, path)
    except (OSError, RuntimeError):  # a full disk
        packed.unlink(missing_ok=True)
        return False, size_bytes
    finally:
        plain.unlink(missing_ok=True)
    return True, size_bytes


def _peak_memory_gib() -> float:
    of_gpu = peak_memory().get("peak_memory_gib")
    if of_gpu is None:
        of_gpu = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    return rounded(of_gpu, 4)
