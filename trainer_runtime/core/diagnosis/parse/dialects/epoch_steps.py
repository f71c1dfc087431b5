"""Loops that print an epoch and a step within it: `Epoch [1/5], Step [100/600], Loss: 0.25`,
`| epoch   1 |   200/ 2983 batches | loss  7.64`, fairseq's `epoch 001:    100 / 2000 loss=13.2`,
timm's `Train: 0 [  50/1251 (  4%)]  Loss: 6.91 (6.93)`, torchvision's
`Epoch: [0][  10/5005]  Loss`.
"""

from __future__ import annotations

import re

from trainer_runtime.core.diagnosis.parse.dialects.dialect import Dialect
from trainer_runtime.core.diagnosis.parse.dialects.key_value import measured_values
from trainer_runtime.core.diagnosis.parse.points import Reading
from trainer_runtime.core.diagnosis.parse.quantities import step_number

_STEP_WORD = rb"(?:(?:[Ss]tep|[Ii]ter(?:ation)?|[Bb]atch)(?:: ?| ))?"
# Where samples are counted, as in `Train Epoch: 1 [640/60000 (1%)]`, they are the steps.
_EPOCH = rb"[Ee]poch(?:: ?| )?\[?\s{0,4}(?:\d+)(?:/ {0,4}\d+)?\]?[\s,:|-]{1,8}"
_OF = rb"\[?\s{0,8}(?:\d+) {0,4}/ {0,4}(?:\d+)"
_FORMS = (
    _EPOCH + _STEP_WORD + _OF + rb"(?:(?: \( {0,3}\d+%\))?\]| batches|(?= [a-z]))",
    _EPOCH + rb"(?:[Ii]ter(?:ation)?|[Bb]atch):? ?" + _OF + rb"(?![\d./])",
    rb"[Ee]poch:? ?\[(?:\d+)(?:/\d+)?\]\[ {0,8}(?:\d+) {0,4}/ {0,4}(?:\d+)\]",
    rb"(?:\d+)-epoch \( {0,4}(?:\d+)/(?:\d+)\)",
    rb"Train: {1,8}(?:\d+)(?:/\d+ \( {0,3}\d+%\))? \[ {0,8}(?:\d+)/(?:\d+) \( {0,4}\d+%\)\]",
)
_LINES = tuple([re.compile(form.replace(rb"(?:\d+)", rb"(\d+)") + rb"(.*)") for form in _FORMS])
_MEANS = re.compile(rb" \([^():]{0,40}\)")


def read(text: bytes) -> Reading | None:
    match = next((found for line in _LINES if (found := line.match(text))), None)
    if match is None:
        return None
    epoch, step, per_epoch, rest = match.groups()
    values = measured_values(_MEANS.sub(b"", rest))
    if not values:
        return None
    reading = Reading("epoch_steps", values, step=step_number(step), counts_epochs=True)
    reading.laps, reading.lap_steps = float(epoch), float(per_epoch)
    return reading


DIALECT = Dialect(
    "epoch_steps",
    (b"poch", b"Train: "),
    rb"\b(?:" + b"|".join(_FORMS) + rb")",
    read,
    counts=True,
)
