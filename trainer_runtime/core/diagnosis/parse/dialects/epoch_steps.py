"""Loops that print an epoch and a step within it: `Epoch [1/5], Step [100/600], Loss: 0.25`,
`| epoch   1 |   200/ 2983 batches | loss  7.64`, fairseq's `epoch 001:    100 / 2000 loss=13.2`,
timm's `Train: 0 [  50/1251 (  4%)]  Loss: 6.91 (6.93)`.
"""

from __future__ import annotations

import re

from trainer_runtime.core.diagnosis.parse.dialects.dialect import Dialect
from trainer_runtime.core.diagnosis.parse.dialects.key_value import measured_values
from trainer_runtime.core.diagnosis.parse.points import Reading
from trainer_runtime.core.diagnosis.parse.quantities import step_number

_STEP_WORD = rb"(?:[Ss]tep|[Ii]ter(?:ation)?|[Bb]atch)"
# Samples that were seen, as in `Train Epoch: 1 [640/60000 (1%)]`, are not steps.
_LINE = re.compile(
    rb"(?:[Ee]poch(?:: ?| )?\[?\s{0,4}(\d+)(?:/\d+)?\]?[\s,:|-]{1,8}"
    rb"(?:" + _STEP_WORD + rb":? ?)?\[?\s{0,8}(\d+) {0,4}/ {0,4}(\d+)\]?(?: batches)?"
    rb"|Train: (\d+) \[ {0,8}(\d+)/(\d+) \( {0,4}\d+%\)\])(.*)"
)
_MEANS = re.compile(rb" \([^()]{0,40}\)")


def read(text: bytes) -> Reading | None:
    match = _LINE.match(text)
    if match is None:
        return None
    epoch, step, per_epoch = (match[1], match[2], match[3]) if match[1] else match.groups()[3:6]
    values = measured_values(_MEANS.sub(b"", match[7]))
    if not values:
        return None
    reading = Reading("epoch_steps", values, step=step_number(step), counts_epochs=True)
    reading.laps, reading.lap_steps = float(epoch), float(per_epoch)
    return reading


DIALECT = Dialect(
    "epoch_steps",
    (b"poch", b"Train: "),
    rb"\b[Ee]poch(?:: ?| )?\[?\s{0,4}\d+(?:/\d+)?\]?[\s,:|-]{1,8}(?:" + _STEP_WORD + rb":? ?)?"
    rb"\[?\s{0,8}\d+ {0,4}/ {0,4}\d+(?:\]| batches| [a-z])"
    rb"|\bTrain: \d+ \[ {0,8}\d+/\d+ \(",
    read,
)
