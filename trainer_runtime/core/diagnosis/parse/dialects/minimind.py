"""minimind, whose steps restart in every epoch."""

from __future__ import annotations

import re

from trainer_runtime.core.diagnosis.parse.dialects.dialect import Dialect
from trainer_runtime.core.diagnosis.parse.fields import pairs_of
from trainer_runtime.core.diagnosis.parse.points import Reading
from trainer_runtime.core.diagnosis.parse.quantities import step_number

_LINE = re.compile(rb"Epoch: ?\[(\d+)/(\d+)\]\((\d+)/(\d+)\),? ?(.*)")
_OLDER = re.compile(rb" (?=[A-Za-z_]+:)")  # newer versions put commas between
_NAMES = {
    "actor loss": "loss",
    "policy loss": "loss",
    "avg response len": "response_length",
    "epoch_time": "",
}


def read(text: bytes) -> Reading | None:
    match = _LINE.match(text)
    if match is None:
        return None
    epoch, epochs, step, per_epoch, rest = match.groups()
    parts = rest.split(b", ") if b", " in rest else _OLDER.split(rest)
    values = pairs_of(parts, _NAMES)
    reading = Reading("minimind", values, step=step_number(step), counts_epochs=True)
    reading.laps, reading.lap_steps = float(epoch), float(per_epoch)
    reading.facts["total_steps"] = float(epochs) * float(per_epoch)
    return reading


DIALECT = Dialect(
    "minimind",
    (b"poch:[", b"poch: ["),
    rb"\bEpoch: ?\[\d+/\d+\]\(\d+/\d+\)",
    read,
)
