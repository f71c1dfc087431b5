"""Composer and LLM Foundry: a line with the batch, and below it one for each metric, indented."""

from __future__ import annotations

import re

from trainer_runtime.core.diagnosis.parse.dialects.dialect import Dialect
from trainer_runtime.core.diagnosis.parse.points import Reading, StepFrom
from trainer_runtime.core.diagnosis.parse.quantities import NUMBER, number, step_number

_BATCH = re.compile(rb"\[batch=(\d+)/(\d+)\]:")
_METRIC = re.compile(rb"(Train|Eval) ([\w/.-]+): (" + NUMBER + rb")$")
_EVALUATED = re.compile(r"metrics/eval(?:/([\w.-]+))?/(?:LanguageCrossEntropy|CrossEntropy)$")
_NAMES = {
    "loss/train/total": "loss",
    "metrics/train/LanguageCrossEntropy": "cross_entropy",
    "throughput/tokens_per_sec": "tokens_per_s",
    "throughput/batches_per_sec": "steps_per_s",
}


def read(text: bytes) -> Reading | None:
    if batch := _BATCH.match(text):
        facts = {"total_steps": float(batch[2])}
        return Reading("composer", step=step_number(batch[1]), facts=facts)
    match = _METRIC.match(text)
    value = None if match is None else number(match[3])
    if match is None or value is None:
        return None
    name = match[2].decode()
    key = _NAMES.get(name)
    if evaluated := _EVALUATED.match(name):
        key = f"val_loss/{evaluated[1]}" if evaluated[1] else "val_loss"
    return None if key is None else Reading("composer", [(key, value)], source=StepFrom.LAST)


DIALECT = Dialect(
    "composer",
    (b"[batch=", b"Train loss/", b"metrics/", b"Train throughput/"),
    rb"\[batch=\d+/\d+\]:\s*$|^\s{1,4}(?:Train|Eval) (?:loss|metrics|throughput)/[\w/.-]+: ",
    lambda text: read(text.strip()),
    needles=(b"[batch=",),
)
