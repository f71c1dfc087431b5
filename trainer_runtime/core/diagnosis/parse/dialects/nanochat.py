"""nanochat: base, mid, SFT and RL scripts."""

from __future__ import annotations

import re

from trainer_runtime.core.diagnosis.parse.dialects.dialect import Dialect, at_line, at_word
from trainer_runtime.core.diagnosis.parse.dialects.key_value import evaluates
from trainer_runtime.core.diagnosis.parse.fields import pairs_of
from trainer_runtime.core.diagnosis.parse.names import held_out_key
from trainer_runtime.core.diagnosis.parse.points import Reading, StepFrom
from trainer_runtime.core.diagnosis.parse.quantities import step_number

_STEP = re.compile(rb"[Ss]tep (\d+)(?:/(\d+))?(?: \([\d.]+%\))? \| (.*)")
_PEAK = re.compile(rb"Peak memory usage: .*")
_SAVED = re.compile(rb"Saved model parameters to: (\S.*)")
_PARTS = re.compile(rb" \| |(?<=\d) (?=[a-z]+: )")
_NAMES = {
    "validation bpb": "val_bpb",
    "validation loss": "val_loss",
    "train loss": "loss",
    "core metric": "core_metric",
    "average reward": "reward",
    "average sequence length": "sequence_length",
}


def read(text: bytes) -> Reading | None:
    if _PEAK.match(text):
        return Reading("nanochat", pairs_of([text]), source=StepFrom.LAST)
    if saved := _SAVED.match(text):
        path = saved[1].decode(errors="replace")
        return Reading("nanochat", source=StepFrom.LAST, events=[("checkpoint", path)])
    match = _STEP.match(text)
    if match is None:
        return None
    parts = _PARTS.split(match[3])
    pairs = pairs_of(parts, _NAMES)
    if any(
        b" " not in part and evaluates(part) for part in parts
    ):  # `Step 5 | Validation | loss …`
        pairs = [(held_out_key(key), value) for key, value in pairs]
    # Its MFU is in per cent, without a unit.
    values = [(key, value * 0.01 if key == "mfu" else value) for key, value in pairs]
    reading = Reading("nanochat", values, step=step_number(match[1]))
    if match[2]:
        reading.facts["total_steps"] = float(match[2])
    return reading


DIALECT = Dialect(
    "nanochat",
    (b"tep ", b"Peak memory usage: ", b"Saved model "),
    b"|".join(
        (
            at_word(rb"step \d+(?:/\d+)?(?: \([\d.]+%\))? \| "),
            at_word(rb"Step \d+(?:/\d+)?(?: \([\d.]+%\))? \| "),
            at_line(rb"Peak memory usage: "),
            rb"Saved model parameters to: ",
        )
    ),
    read,
)
