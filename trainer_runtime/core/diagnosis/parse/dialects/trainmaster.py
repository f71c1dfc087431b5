"""Our own trainer's lines, as a folder that was rendered or exported prints them."""

from __future__ import annotations

import re

from trainer_runtime.core.diagnosis.parse.dialects.dialect import Dialect
from trainer_runtime.core.diagnosis.parse.fields import pairs_of
from trainer_runtime.core.diagnosis.parse.points import Reading
from trainer_runtime.core.diagnosis.parse.quantities import step_number

_STEP = re.compile(rb"step (\d+)/(\d+) \| (loss \S+ \| lr \S+ \| grad_norm \S+.*)")
_EVALUATED = re.compile(rb"step (\d+): (val_loss \S+) \(\d+ batches\)")
# Names that stand behind their numbers.
_TURNED = re.compile(rb"([\d.,]+) (tok/s|ms)$")
_NAMES = {"ms": "step_time_s"}


def read(text: bytes) -> Reading | None:
    if evaluated := _EVALUATED.match(text):
        return Reading("trainmaster", pairs_of([evaluated[2]]), step=step_number(evaluated[1]))
    match = _STEP.match(text)
    if match is None:
        return None
    parts = [_TURNED.sub(rb"\2 \1", part) for part in match[3].split(b" | ")]
    values = pairs_of((part + b"ms" if part.startswith(b"ms ") else part for part in parts), _NAMES)
    reading = Reading("trainmaster", values, step=step_number(match[1]))
    reading.facts["total_steps"] = float(match[2])
    return reading


DIALECT = Dialect(
    "trainmaster",
    (b" | grad_norm ", b": val_loss "),
    rb"\bstep \d+/\d+ \| loss \S+ \| lr \S+ \| grad_norm |\bstep \d+: val_loss \S+ \(\d+ batches",
    read,
)
