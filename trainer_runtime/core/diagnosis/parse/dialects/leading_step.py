"""Loops whose lines begin with their step: llama2.c's `10 | loss 8.1 | lr 1e-5 | 120ms`,
torchtune's `1|10|Loss: 2.3:  5%|…`, MMEngine's `Iter(train) [  10/1000]  lr: … loss: 2.3`, Flax's
`Step... (100 | Loss: 5.6, …)`, and `[10/500] loss=8.5` of many.
"""

from __future__ import annotations

import re

from trainer_runtime.core.diagnosis.parse.dialects.dialect import Dialect
from trainer_runtime.core.diagnosis.parse.dialects.key_value import measured_values
from trainer_runtime.core.diagnosis.parse.points import Reading
from trainer_runtime.core.diagnosis.parse.quantities import step_number

_LEADS = tuple(
    re.compile(lead)
    for lead in (
        rb"(?P<step>\d+) \| (?=loss )",
        rb"\d+\|(?P<step>\d+)\|(?=[Ll]oss: )",
        rb"(?:Iter|Epoch)\(train\) {1,4}(?:\[(?P<epoch>\d+)\])?\[ *(?P<step>\d+)/(?P<of>\d+)\]",
        rb"\[ *(?P<step>\d+)/(?P<of>\d+)\],? (?=(?:train[_ /]?)?[Ll]oss)",
        rb"Step\.\.\. \((?P<step>\d+) \| ",
    )
)


def read(text: bytes) -> Reading | None:
    match = next((found for lead in _LEADS if (found := lead.match(text))), None)
    if match is None:
        return None
    values = measured_values(text[match.end() :])
    if not values:
        return None
    named = match.groupdict()
    reading = Reading("leading_step", values, step=step_number(match["step"]))
    if named.get("epoch"):
        reading.laps, reading.lap_steps = float(match["epoch"]), float(match["of"])
        reading.counts_epochs = True
    elif named.get("of"):
        reading.facts["total_steps"] = float(match["of"])
    return reading


DIALECT = Dialect(
    "leading_step",
    (b" | loss ", b"|Loss: ", b"|loss: ", b"(train) ", b"] loss", b"] Loss", b"] train", b"... ("),
    rb"^\d+ \| loss |^\d+\|\d+\|[Ll]oss: |\b(?:Iter|Epoch)\(train\) {1,4}\["
    rb"|^\[ *\d+/\d+\],? (?:train[_ /]?)?[Ll]oss|\bStep\.\.\. \(\d+ \| ",
    read,
    counts=True,
)
