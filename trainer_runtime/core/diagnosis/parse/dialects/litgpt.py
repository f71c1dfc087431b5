"""LitGPT: pretrain and finetune."""

from __future__ import annotations

import re

from trainer_runtime.core.diagnosis.parse.dialects.dialect import Dialect
from trainer_runtime.core.diagnosis.parse.fields import pairs_of
from trainer_runtime.core.diagnosis.parse.points import Reading, StepFrom
from trainer_runtime.core.diagnosis.parse.quantities import step_number

_TRAIN = re.compile(
    rb"Epoch (\d+) \| iter (\d+) step (\d+) ?\| (loss train: [^,|]*)[^|]*\| (iter time: [^|(]*)"
)
_EVAL = re.compile(rb"iter (\d+): (val loss .*)")
_FINAL = re.compile(rb"Final evaluation \| (.*)")
_SAVED = re.compile(rb"Saving checkpoint to '([^']*)'")
_NAMES = {
    "loss train": "loss",
    "iter time": "micro_step_time_s",
    "val loss": "val_loss",
    "val time": "val_time_s",
    "val ppl": "val_perplexity",
}


def read(text: bytes) -> Reading | None:
    if match := _TRAIN.match(text):
        # `val:` repeats an evaluation that was logged before.
        values = [("epoch", float(match[1])), *pairs_of((match[4], match[5]), _NAMES)]
        micro = step_number(match[2])
        return Reading("litgpt", values, step=step_number(match[3]), micro=micro)
    if match := _EVAL.match(text):
        values = pairs_of(match[2].split(b", "), _NAMES)
        return Reading("litgpt", values, source=StepFrom.MICRO, micro=step_number(match[1]))
    if match := _FINAL.match(text):
        return Reading("litgpt", pairs_of(match[1].split(b" | "), _NAMES), source=StepFrom.LAST)
    if match := _SAVED.match(text):
        path = match[1].decode(errors="replace")
        return Reading("litgpt", source=StepFrom.LAST, events=[("checkpoint", path)])
    return None


DIALECT = Dialect(
    "litgpt",
    (b"loss train: ", b": val loss ", b"Final evaluation", b"Saving checkpoint to "),
    rb"\bEpoch \d+ \| iter \d+ step \d+ ?\| loss train: |\biter \d+: val loss "
    rb"|\bFinal evaluation \| |\bSaving checkpoint to '",
    read,
)
