"""Keras 2 and 3, and Paddle's hapi: a heading with the epoch above the lines of its batches.

Keras's lines hold means since the epoch's begin, so that the closing one is the epoch's. Paddle's
are of single batches (read by `key_value`), and its evaluations have a heading of their own.
"""

from __future__ import annotations

import re

from trainer_runtime.core.diagnosis.parse.dialects.dialect import Dialect
from trainer_runtime.core.diagnosis.parse.dialects.key_value import measured_values
from trainer_runtime.core.diagnosis.parse.names import held_out_key
from trainer_runtime.core.diagnosis.parse.points import Heading, Reading, StepFrom
from trainer_runtime.core.diagnosis.parse.quantities import step_number

_EPOCH = re.compile(rb"Epoch:? \[?(\d+)(?:/| of )(\d+)\]?[ .:*=#-]*$")
# PyTorch's tutorial on transfer learning.
_PHASE = re.compile(rb"(train|val|valid|test) Loss: [\d.]+ Acc: [\d.]+\s*$")
_SCOPES = {b"Eval begin...": Heading.EVALUATION, b"Eval samples": Heading.TRAINING}
_LINE = re.compile(
    r"(?:(\d+)/(\d+) (?:\[[=>.]+\] -|[━╸╺ ]+|-) ?)?(?:- )?(?:\d+m)?(\d+)s (.*- .*)".encode()
)


def read(text: bytes) -> Reading | None:
    if heading := _EPOCH.match(text):
        reading = Reading("keras", step=step_number(heading[1]), heads=Heading.EPOCH)
        reading.lap_steps = float(heading[2])
        return reading
    for words, scope in _SCOPES.items():
        if text.startswith(words):
            return Reading("keras", step=0.0, heads=scope)
    if phase := _PHASE.match(text):
        values = measured_values(text)
        if phase[1] == b"train":
            return Reading("keras", values, source=StepFrom.EPOCH)
        held_out = [(held_out_key(key), value) for key, value in values]
        return Reading("keras", held_out, source=StepFrom.LAST)
    match = _LINE.match(text)
    values = measured_values(match[4]) if match else []
    if match is None or not values:
        return None
    reading = Reading("keras", values, source=StepFrom.EPOCH)
    if match[1]:
        reading.step, reading.lap_steps = step_number(match[1]), float(match[2])
        reading.micro = float(match[3])
    return reading


DIALECT = Dialect(
    "keras",
    (b"Epoch", b"=] - ", "━".encode(), b"s - ", b" Loss: ", b"Eval begin", b"Eval samples"),
    rb"(?:^|(?<=[\])>|:-] ))\s*Epoch:? \[?\d+(?:/| of )\d+\]?[ .:*=#-]*$"
    rb"|^\s*Eval begin\.\.\.|^\s*Eval samples: \d"
    + r"|\b\d+/\d+ \[[=>.]+\] - (?:\d+m)?\d+s |\b\d+/\d+ ━[━ ]+ (?:\d+m)?\d+s ".encode()
    + rb"|^(?:train|val|valid|test) Loss: [\d.]+ Acc: [\d.]+\s*$"
    + rb"|^\d+/\d+ - (?:\d+m)?\d+s |^ - (?:\d+m)?\d+s - ",
    lambda text: read(text.strip()),
    needles=(
        b"Eval begin",
        b"Eval samples",
    ),
)
