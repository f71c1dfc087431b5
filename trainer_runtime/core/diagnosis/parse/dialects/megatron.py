"""Megatron-LM, Megatron-DeepSpeed and programs with the same format."""

from __future__ import annotations

import re

from trainer_runtime.core.diagnosis.parse.dialects.dialect import Dialect
from trainer_runtime.core.diagnosis.parse.fields import pairs_of
from trainer_runtime.core.diagnosis.parse.points import Reading, StepFrom
from trainer_runtime.core.diagnosis.parse.quantities import step_number

_STEP = re.compile(rb"iteration +(\d+)/ *(\d+) \|(.*)")
_EVAL = re.compile(
    rb"validation loss at (?:iteration|the end of training) *(\d+)?[^|]*\|(.*)", re.IGNORECASE
)
_TIMES = re.compile(rb"time \(ms\) \|(.*)")
_MEMORY = re.compile(rb"(?:\[Rank (\d+)\] )?\(after (\d+) iterations\) memory \(MB\) \|(.*)")
_SAVED = re.compile(rb"successfully saved checkpoint at iteration +(\d+) to (\S+)")
_NAMES = {
    "consumed samples": "samples",
    "consumed tokens": "tokens",
    "elapsed time per iteration": "step_time_s",
    "elapsed time per iteration (s)": "step_time_s",
    "throughput per gpu": "tflops",
    "number of skipped iterations": "skipped_iterations",
    "number of nan iterations": "nan_count",
    "lm loss value": "val_loss",
    "lm loss ppl": "val_perplexity",
    "max allocated": "peak_memory_gib",
    "allocated": "memory_allocated_gib",
    "max reserved": "peak_memory_reserved_gib",
    "reserved": "memory_reserved_gib",
}


def read(text: bytes) -> Reading | None:
    if match := _STEP.match(text):
        values = pairs_of(match[3].split(b"|"), _NAMES)
        facts = {"total_steps": float(match[2])}
        return Reading("megatron", values, step=step_number(match[1]), facts=facts)
    if match := _EVAL.match(text):
        values = pairs_of(match[2].split(b"|"), _NAMES)
        source = StepFrom.LINE if match[1] else StepFrom.LAST
        step = step_number(match[1]) if match[1] else None
        return Reading("megatron", values, step=step, source=source)
    if match := _TIMES.match(text):
        times = pairs_of(match[1].split(b"|"))
        values = [(f"time/{key}_s", value * 1e-3) for key, value in times]
        return Reading("megatron", values, source=StepFrom.LAST)
    if match := _MEMORY.match(text):
        pairs = pairs_of(match[3].split(b"|"), _NAMES)
        values = [(key, value / 1024) for key, value in pairs]
        rank = int(match[1]) if match[1] else None
        return Reading("megatron memory", values, step=step_number(match[2]), rank=rank)
    if match := _SAVED.match(text):
        path = match[2].decode(errors="replace")
        return Reading("megatron", step=step_number(match[1]), events=[("checkpoint", path)])
    return None


DIALECT = Dialect(
    "megatron",
    (b"iteration", b"time (ms)"),
    rb"\biteration +\d+/ *\d+ \||\bvalidation loss at (?:iteration|the end of)|\btime \(ms\) \|"
    rb"|(?:\[Rank \d{1,5}\] )?\(after \d+ iterations\) memory \(MB\) \|"
    rb"|\bsuccessfully saved checkpoint at iteration ",
    read,
    needles=(b"e (ms)",),
)
