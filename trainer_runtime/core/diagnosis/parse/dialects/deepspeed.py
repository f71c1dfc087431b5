"""DeepSpeed's own lines, in addition to those of the script."""

from __future__ import annotations

import re

from trainer_runtime.core.diagnosis.parse.dialects.dialect import Dialect
from trainer_runtime.core.diagnosis.parse.fields import pairs_of
from trainer_runtime.core.diagnosis.parse.points import Reading, StepFrom
from trainer_runtime.core.diagnosis.parse.quantities import NUMBER, number, step_number

_STEP = re.compile(rb"step=(\d+), skipped=(\d+), lr=\[(" + NUMBER + rb")[^\]]*\](?:, mom=\[.*\])?")
_TIMER = re.compile(
    rb"(?:epoch=\d+/micro_step=\d+/global_step=(\d+)|\d+/(\d+)), (RunningAvgSamplesPerSec=.*)"
)
_PIPELINE = re.compile(rb"steps: (\d+) (loss: .*)")
_OVERFLOW = re.compile(
    rb"OVERFLOW! Rank (\d+) Skipping step\..*?(?:reducing to (" + NUMBER + rb")|$)"
)
_PARTS = re.compile(rb"(?<=\d) (?=[a-z])")
_NAMES = {
    "runningavgsamplespersec": "samples_per_s_mean",
    "memallocated": "memory_allocated_gib",
    "iter time": "step_time_s",
}


def read(text: bytes) -> Reading | None:
    if match := _STEP.match(text):
        rate, skipped = number(match[3]), number(match[2])
        values = [("lr", rate or 0.0), ("skipped_steps", skipped or 0.0)]
        return Reading("deepspeed", values, step=step_number(match[1]))
    if match := _TIMER.match(text):
        values = pairs_of(match[3].split(b", "), _NAMES)
        return Reading("deepspeed timer", values, step=step_number(match[1] or match[2]))
    if match := _PIPELINE.match(text):
        values = pairs_of(_PARTS.split(match[2]), _NAMES)
        return Reading("deepspeed pipeline", values, step=step_number(match[1]))
    match = _OVERFLOW.match(text)
    if match is None:
        return None
    scale = number(match[2]) if match[2] else None
    return Reading(
        "deepspeed",
        [("loss_scale", scale)] if scale is not None else [],
        source=StepFrom.LAST,
        rank=int(match[1]),
        events=[("overflow", "")],
    )


DIALECT = Dialect(
    "deepspeed",
    (b"skipped=", b"SamplesPerSec=", b"steps: ", b"OVERFLOW!"),
    rb"\bstep=\d+, skipped=\d+, lr=\["
    rb"|(?:\bepoch=\d+/micro_step=\d+/global_step=\d+|\b\d+/\d+), RunningAvgSamplesPerSec="
    rb"|\bsteps: \d+ loss: |\bOVERFLOW! Rank \d{1,5} Skipping step\.",
    read,
    needles=(
        b"PerSec",
        b"OVERFLOW",
    ),
)
