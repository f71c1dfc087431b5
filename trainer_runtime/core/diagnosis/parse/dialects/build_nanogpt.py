"""build-nanogpt's log.txt: a step, what was measured, and its value."""

from __future__ import annotations

import re

from trainer_runtime.core.diagnosis.parse.dialects.dialect import Dialect
from trainer_runtime.core.diagnosis.parse.points import Reading
from trainer_runtime.core.diagnosis.parse.quantities import NUMBER, number, step_number

_LINE = re.compile(rb"(\d+) (train|val|hella) (" + NUMBER + rb")$")
_NAMES = {b"train": "loss", b"val": "val_loss", b"hella": "hellaswag"}


def read(text: bytes) -> Reading | None:
    match = _LINE.match(text)
    value = None if match is None else number(match[3])
    if match is None or value is None:
        return None
    return Reading("build_nanogpt", [(_NAMES[match[2]], value)], step=step_number(match[1]))


DIALECT = Dialect(
    "build_nanogpt",
    (b" train ", b" val ", b" hella "),
    rb"^\d+ (?:train|val|hella) [-+\dni]",
    read,
    needles=(b" hella ",),
)
