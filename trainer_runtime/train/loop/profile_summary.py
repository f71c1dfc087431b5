"""What a profile's operators and kernels add up to; without PyTorch."""

from __future__ import annotations

import re
import statistics
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from trainer_runtime.core.protocol.figures import rounded
from trainer_runtime.core.protocol.profile import Kernels, OperatorTime

MARK = "trainmaster#"
"""Begins the names of the annotations for `Mark`s; the mark's place among them follows."""
DATA, FORWARD, BACKWARD, OPTIMIZER, OTHER = "data", "forward", "backward", "optimizer", "other"
_MOST_OPERATORS = 8
_LONGEST_NAME = 80
_BACKWARD = "autograd::engine::evaluate_function"
_OPTIMIZER = "Optimizer."
_ATTENTION = re.compile(r"scaled_dot_product|attention|flash|\b(ba?dd)?bmm\b|(?<!log)_softmax")

Interval = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Mark:
    """A border that the step clock went past: `begin` of a step's time, its `end`, where the next
    one's begins, or that the last `seconds` went to `data`."""

    kind: str
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Operator:
    """One call of an operator, in microseconds. `root`: the operator called from Python that it is
    part of, by its place in the list. `own_us`, `own_gpu_us`: without its parts."""

    name: str
    start_us: float
    end_us: float
    root: int
    own_us: float
    own_gpu_us: float = 0.0


@dataclass(frozen=True, slots=True)
class Kernel:
    """One kernel or copy on the GPU, in microseconds."""

    name: str
    start_us: float
    end_us: float


@dataclass(frozen=True, slots=True)
class Summary:
    """As in `Profile`; `us` is the time of all the steps that were counted."""

    steps: int
    us: float
    host: dict[str, float] = field(default_factory=dict)
    gpu: dict[str, float] = field(default_factory=dict)
    operators: tuple[OperatorTime, ...] = ()
    attention: float = 0.0
    kernels: Kernels | None = None


def summarise(
    operators: Sequence[Operator], kernels: Sequence[Kernel], marks: Sequence[Mark]
) -> Summary:
    """Sums over the steps between marks, without the first, in which the profiler warmed up.

    Raises:
        ValueError: no step is whole.
    """
    windows, data = _windows(operators, marks)
    if not windows:
        raise ValueError("no step was profiled whole")
    us = sum(end - start for start, end in windows)
    phases = _phases(operators, windows, data)
    host, gpu = _by_phase(operators, phases)
    host[DATA] = sum(end - start for start, end in data)
    host["outside"] = max(0.0, us - sum(host.values()))
    seen = _within(kernels, windows)
    if seen:
        gpu |= _by_kind(seen)
        gpu["idle"] = max(0.0, us - sum(end - start for start, end in _merged(seen)))
    counted = [operator for operator, phase in zip(operators, phases, strict=True) if phase]
    times = _operator_times(counted, len(windows), on_gpu=bool(seen))
    return Summary(
        steps=len(windows),
        us=us,
        host=_shares(host, us),
        gpu=_shares(gpu, us) if seen else {},
        operators=tuple(times[:_MOST_OPERATORS]),
        attention=rounded(sum(one.share for one in times if _ATTENTION.search(one.name)), 3),
        kernels=_kernels(seen, len(windows)) if seen else None,
    )


def _windows(
    operators: Sequence[Operator], marks: Sequence[Mark]
) -> tuple[list[Interval], list[Interval]]:
    """The times of the steps, and of their waiting for data."""
    windows: list[Interval] = []
    data: list[Interval] = []
    start: float | None = None
    waited: list[Interval] = []
    for at_us, mark in _passed(operators, marks):
        if mark.kind == DATA and start is not None:
            waited.append((max(start, at_us - mark.seconds * 1e6), at_us))
        elif mark.kind != DATA:
            if mark.kind == "end" and start is not None:
                windows.append((start, at_us))
                data += waited if len(windows) > 1 else ()
            start, waited = at_us, []
    return windows[1:], data


def _passed(operators: Sequence[Operator], marks: Sequence[Mark]) -> list[tuple[float, Mark]]:
    numbered = (one for one in operators if one.name.startswith(MARK))
    passed = [(one.end_us, marks[int(one.name.removeprefix(MARK))]) for one in numbered]
    return sorted(passed, key=lambda pair: pair[0])


def _phases(
    operators: Sequence[Operator], windows: Sequence[Interval], data: Sequence[Interval]
) -> list[str | None]:
    """Each operator's phase; None outside of the steps."""
    roots = [place for place, operator in enumerate(operators) if operator.root == place]
    step_of = {place: _place_in(windows, operators[place].start_us) for place in roots}
    last_backward: dict[int, float] = {}
    for place, step in step_of.items():
        if step is not None and operators[place].name.startswith(_BACKWARD):
            start_us = operators[place].start_us
            last_backward[step] = max(start_us, last_backward.get(step, start_us))
    phase_of: dict[int, str | None] = {}
    for place, step in step_of.items():
        operator = operators[place]
        if step is None or operator.name.startswith(MARK):
            phase_of[place] = None
        elif _place_in(data, operator.start_us) is not None:
            phase_of[place] = DATA
        elif operator.name.startswith(_BACKWARD):
            phase_of[place] = BACKWARD
        elif operator.name.startswith(_OPTIMIZER):
            phase_of[place] = OPTIMIZER
        else:
            is_before = operator.start_us < last_backward.get(step, 0.0)
            phase_of[place] = FORWARD if is_before else OTHER
    return [phase_of[operator.root] for operator in operators]


def _place_in(intervals: Sequence[Interval], at_us: float) -> int | None:
    """Which of these, in order and apart from one another, holds this time."""
    place = bisect_right(intervals, (at_us, float("inf"))) - 1
    return place if place >= 0 and at_us < intervals[place][1] else None


def _by_phase(
    operators: Sequence[Operator], phases: Sequence[str | None]
) -> tuple[dict[str, float], dict[str, float]]:
    """Microseconds on the host, without what waits for data, and of their kernels."""
    host = dict.fromkeys((FORWARD, BACKWARD, OPTIMIZER, OTHER), 0.0)
    gpu = dict(host)
    for place, (operator, phase) in enumerate(zip(operators, phases, strict=True)):
        if phase is None:
            continue
        if operator.root == place and phase != DATA:
            host[phase] += operator.end_us - operator.start_us
        gpu[phase if phase != DATA else OTHER] += operator.own_gpu_us
    return host, gpu


def _within(kernels: Sequence[Kernel], windows: Sequence[Interval]) -> list[Kernel]:
    inside = [one for one in kernels if _place_in(windows, one.start_us) is not None]
    return sorted(inside, key=lambda one: one.start_us)


def _by_kind(kernels: Iterable[Kernel]) -> dict[str, float]:
    kinds = {"copies": 0.0, "communication": 0.0}
    for one in kernels:
        name = one.name.lower()
        if name.startswith(("memcpy", "memset")):
            kinds["copies"] += one.end_us - one.start_us
        elif "nccl" in name or "rccl" in name:
            kinds["communication"] += one.end_us - one.start_us
    return kinds


def _merged(kernels: Sequence[Kernel]) -> list[Interval]:
    """The times in which at least one of them ran; they are in order of their starts."""
    merged: list[Interval] = []
    for one in kernels:
        if merged and one.start_us <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(merged[-1][1], one.end_us))
        else:
            merged.append((one.start_us, one.end_us))
    return merged


def _kernels(kernels: Sequence[Kernel], steps: int) -> Kernels:
    busy = _merged(kernels)
    gaps = [after[0] - before[1] for before, after in pairwise(busy)]
    return Kernels(
        per_step=rounded(len(kernels) / steps, 4),
        median_us=rounded(statistics.median(one.end_us - one.start_us for one in kernels), 3),
        median_gap_us=rounded(statistics.median(gaps), 3) if gaps else 0.0,
    )


def _operator_times(
    operators: Iterable[Operator], steps: int, *, on_gpu: bool
) -> list[OperatorTime]:
    """By name, the longest first; those that take nothing are left out."""
    own: defaultdict[str, float] = defaultdict(float)
    calls: defaultdict[str, int] = defaultdict(int)
    for operator in operators:
        own[operator.name] += operator.own_gpu_us if on_gpu else operator.own_us
        calls[operator.name] += 1
    whole = sum(own.values())
    return [
        OperatorTime(
            name=name[:_LONGEST_NAME],
            share=rounded(us / whole, 3),
            step_ms=rounded(us / steps / 1e3, 3),
            calls=rounded(calls[name] / steps, 3),
        )
        for name, us in sorted(own.items(), key=lambda item: -item[1])
        if us > 0
    ]


def _shares(us: dict[str, float], whole: float) -> dict[str, float]:
    return {name: rounded(part / whole, 3) for name, part in us.items() if part > 0}
