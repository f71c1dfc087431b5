"""verl's console logger: a step and all its metrics on one line."""

from __future__ import annotations

import re

from trainer_runtime.core.diagnosis.parse.dialects.dialect import Dialect
from trainer_runtime.core.diagnosis.parse.fields import pairs_of
from trainer_runtime.core.diagnosis.parse.points import Reading
from trainer_runtime.core.diagnosis.parse.quantities import step_number

_LINE = re.compile(rb"step:(\d+) - (.*)")
# Newer versions print the types of NumPy too.
_TYPED = re.compile(rb"np\.(?:float|int)\d+\(([^()]*)\)")
_NAMES = {
    "actor/pg_loss": "loss",
    "train/loss": "loss",
    "actor/grad_norm": "grad_norm",
    "actor/lr": "lr",
    "critic/rewards/mean": "reward",
    "response_length/mean": "response_length",
    "timing_s/step": "step_time_s",
    "perf/throughput": "tokens_per_s",
    "perf/mfu/actor": "mfu",
}


def read(text: bytes) -> Reading | None:
    match = _LINE.match(text)
    if match is None:
        return None
    rest = _TYPED.sub(rb"\1", match[2]) if b"np." in match[2] else match[2]
    values = pairs_of(rest.split(b" - "), _NAMES)
    return Reading("verl", values, step=step_number(match[1]))


DIALECT = Dialect("verl", (b"step:",), rb"\bstep:\d+ - [\w/@.-]+:", read)
