"""nanoGPT and its forks."""

from __future__ import annotations

import re

from trainer_runtime.core.diagnosis.parse.dialects.dialect import Dialect
from trainer_runtime.core.diagnosis.parse.fields import pairs_of
from trainer_runtime.core.diagnosis.parse.points import Reading, StepFrom
from trainer_runtime.core.diagnosis.parse.quantities import step_number

_TRAIN = re.compile(rb"iter (\d+): (loss .*)")
_EVAL = re.compile(rb"step (\d+): (train loss .*)")
_SAVED = re.compile(rb"saving checkpoint to (\S.*)")
_NAMES = {
    "time": "step_time_s",
    "train loss": "train_loss_eval",
    "val loss": "val_loss",
}


def read(text: bytes) -> Reading | None:
    if saved := _SAVED.match(text):
        path = saved[1].decode(errors="replace")
        return Reading("nanogpt", source=StepFrom.LAST, events=[("checkpoint", path)])
    match = _TRAIN.match(text) or _EVAL.match(text)
    if match is None:
        return None
    pairs = pairs_of(match[2].split(b", "), _NAMES)
    # nanoGPT prints an MFU of -100 % until it has measured one.
    values = [(key, value) for key, value in pairs if key != "mfu" or value >= 0]
    return Reading("nanogpt", values, step=step_number(match[1]))


DIALECT = Dialect(
    "nanogpt",
    (b": loss ", b": train loss ", b"saving checkpoint to "),
    rb"\biter \d+: loss |\bstep \d+: train loss |^saving checkpoint to \S",
    read,
)
