"""torchtitan."""

from __future__ import annotations

import re

from trainer_runtime.core.diagnosis.parse.dialects.dialect import Dialect, at_word
from trainer_runtime.core.diagnosis.parse.fields import pairs_of
from trainer_runtime.core.diagnosis.parse.points import Reading, StepFrom
from trainer_runtime.core.diagnosis.parse.quantities import step_number

_STEP = re.compile(rb"(validate )?step: *(\d+)  (.*)")
_EDGE = re.compile(rb"Training (completed)|Saving the checkpoint|Training starts at step (\d+)")
_PARTS = re.compile(rb"  +(?=[a-z_]+:)")
_NAMES = {"memory": "peak_memory_gib"}


def read(text: bytes) -> Reading | None:
    if match := _STEP.match(text):
        names = {**_NAMES, "loss": "val_loss", "tps": "val_tokens_per_s"} if match[1] else _NAMES
        return Reading(
            "torchtitan", pairs_of(_PARTS.split(match[3]), names), step=step_number(match[2])
        )
    match = _EDGE.match(text)
    if match is None:
        return None
    if match[1]:
        return Reading("torchtitan", source=StepFrom.LAST, events=[("completed", "")])
    if match[2]:
        first = match[2].decode()
        return Reading("torchtitan", source=StepFrom.LAST, events=[("started", first)])
    return Reading("torchtitan", source=StepFrom.LAST, events=[("checkpoint", "")])


DIALECT = Dialect(
    "torchtitan",
    (b"step:", b"Training ", b"Saving the checkpoint"),
    b"|".join(
        (
            rb"validate step: *\d+  [a-z_]+: ",
            at_word(rb"step: *\d+  [a-z_]+: "),
            at_word(rb"Training completed$"),
            at_word(rb"Saving the checkpoint"),
            at_word(rb"Training starts at step \d"),
        )
    ),
    read,
)
