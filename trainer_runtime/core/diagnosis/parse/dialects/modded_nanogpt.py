"""modded-nanogpt's speedruns, and llm.c: its log file and its console."""

from __future__ import annotations

import re

from trainer_runtime.core.diagnosis.parse.dialects.dialect import Dialect, at_line, at_word
from trainer_runtime.core.diagnosis.parse.fields import pairs_of
from trainer_runtime.core.diagnosis.parse.points import Reading, StepFrom
from trainer_runtime.core.diagnosis.parse.quantities import step_number

_STEP = re.compile(rb"(?:step|s):(\d+)(?:/(\d+))? (.*)")
_CONSOLE = re.compile(rb"step +(\d+)/(\d+) \| (.*)")
_VALIDATED = re.compile(rb"val loss .*")
_PEAK = re.compile(rb"peak memory consumption: .*")
_BARS = re.compile(rb" ?\| ?")
# llm.c's console prints some names after the numbers.
_TURNED = re.compile(rb"([-+]?[\d.]+%?) (bf16 MFU|tok/s|ms)\b")
_NAMES = {"val loss": "val_loss", "bf16 mfu": "mfu", "ms": "step_time_s"}


def read(text: bytes) -> Reading | None:
    if match := _STEP.match(text):
        values = pairs_of(match[3].split())
    elif match := _CONSOLE.match(text):
        parts = [_TURNED.sub(rb"\2 \1", part) for part in _BARS.split(match[3])]
        values = pairs_of((_in_ms(part) for part in parts), _NAMES)
    elif _PEAK.match(text) or _VALIDATED.match(text):
        return Reading("modded_nanogpt", pairs_of([text], _NAMES), source=StepFrom.LAST)
    else:
        return None
    reading = Reading("modded_nanogpt", values, step=step_number(match[1]))
    if match[2]:
        reading.facts["total_steps"] = float(match[2])
    return reading


def _in_ms(part: bytes) -> bytes:
    return part + b"ms" if part.startswith(b"ms ") else part


DIALECT = Dialect(
    "modded_nanogpt",
    (b"step:", b"s:", b" | loss ", b"val loss ", b"peak memory "),
    b"|".join(
        (
            at_word(rb"step:\d+(?:/\d+)? [a-z_]+:"),
            at_word(rb"s:\d+ [a-z]+:"),
            at_word(rb"step +\d+/\d+ \| loss "),
            at_line(rb"val loss \d"),
            at_line(rb"peak memory consumption: "),
        )
    ),
    read,
)
