"""Loops whose lines begin with their step: llama2.c's `10 | loss 8.1 | lr 1e-5 | 120ms`,
torchtune's `1|10|Loss: 2.3:  5%|…`, MMEngine's `Iter(train) [  10/1000]  lr: … loss: 2.3`, Flax's
`Step... (100 | Loss: 5.6, …)`, and `[10/500] loss=8.5` of many. Some have no name for the loss, or
another: Marian, PyTorch's seq2seq tutorial; LightGBM and XGBoost.
"""

from __future__ import annotations

import re

from trainer_runtime.core.diagnosis.parse.dialects.dialect import Dialect
from trainer_runtime.core.diagnosis.parse.dialects.key_value import measured_values
from trainer_runtime.core.diagnosis.parse.points import Reading
from trainer_runtime.core.diagnosis.parse.quantities import NUMBER, number, step_number

_LEADS = tuple(
    re.compile(lead.replace(b"N", NUMBER) if b"<loss>" in lead else lead)
    for lead in (
        rb"(?P<step>\d+) \| (?=loss )",
        rb"\d+\|(?P<step>\d+)\|(?=[Ll]oss: )",
        rb"(?:Iter|Epoch)\(train\) {1,4}(?:\[(?P<epoch>\d+)\])?\[ *(?P<step>\d+)/(?P<of>\d+)\]",
        rb"\[ *(?P<step>\d+)/(?P<of>\d+)\],? (?=(?:train[_ /]?)?[Ll]oss)",
        rb"Step\.\.\. \((?P<step>\d+) \| ",
        rb"Ep\. \d+ : Up\. (?P<step>\d+) : .{0,60}? : Cost (?P<loss>N)",
        rb"\d+m \d+s \(- ?\d+m \d+s\) \((?P<step>\d+) \d+%\) (?P<loss>N)\s*$",
        rb"\[(?P<step>\d+)\]\s+train(?:ing)?(?:'s |-)\w*(?:loss|rmse|mse|l2): ?(?P<loss>N)"
        rb"(?:\s+(?:eval|val|test)\w*(?:'s |-)\w+: ?(?P<val_loss>N))?\s*$",
    )
)


def read(text: bytes) -> Reading | None:
    match = next((found for lead in _LEADS if (found := lead.match(text))), None)
    if match is None:
        return None
    named = match.groupdict()
    own = [(key, number(named[key])) for key in ("loss", "val_loss") if named.get(key)]
    values = [(key, value) for key, value in own if value is not None]
    values = values or measured_values(text[match.end() :])
    if not values:
        return None
    reading = Reading("leading_step", values, step=step_number(match["step"]))
    if named.get("epoch"):
        reading.laps, reading.lap_steps = float(match["epoch"]), float(match["of"])
        reading.counts_epochs = True
    elif named.get("of"):
        reading.facts["total_steps"] = float(match["of"])
    return reading


DIALECT = Dialect(
    "leading_step",
    (
        *(b" | loss ", b"|Loss: ", b"|loss: ", b"(train) ", b"] loss", b"] Loss", b"] train"),
        *(b"... (", b" : Up. ", b"s (- ", b"]\ttrain"),
    ),
    rb"^\d+ \| loss |^\d+\|\d+\|[Ll]oss: |\b(?:Iter|Epoch)\(train\) {1,4}\["
    rb"|^\[ *\d+/\d+\],? (?:train[_ /]?)?[Ll]oss|\bStep\.\.\. \(\d+ \| "
    rb"|\bEp\. \d+ : Up\. \d+ : |^\d+m \d+s \(- |^\[\d+\]\s+train",
    read,
    counts=True,
    needles=(b" : Up. ", b"s (- "),
)
