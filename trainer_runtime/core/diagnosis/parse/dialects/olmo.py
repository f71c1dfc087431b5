"""OLMo and OLMo-core: a line with the step, and below it one for each metric, indented."""

from __future__ import annotations

import re

from trainer_runtime.core.diagnosis.parse.dialects.dialect import Dialect
from trainer_runtime.core.diagnosis.parse.names import key_of
from trainer_runtime.core.diagnosis.parse.points import Reading, StepFrom
from trainer_runtime.core.diagnosis.parse.quantities import NUMBER, number, step_number

_STEP = re.compile(rb"\[step=(\d+)/(\d+)(?:,epoch=\d+)?\]")
_METRIC = re.compile(rb"((?:train|optim|throughput|eval|System)/[\w/.-]+)=(" + NUMBER + rb")$")
_LOSS = "CrossEntropyLoss"
_NAMES = {
    f"train/{_LOSS}": "loss",
    "train/Perplexity": "perplexity",
    "optim/total_grad_norm": "grad_norm",
    "optim/learning_rate_group0": "lr",
    "throughput/total_tokens": "tokens",
    "throughput/device/tokens_per_second": "tokens_per_s",
}


def read(text: bytes) -> Reading | None:
    if step := _STEP.match(text):
        facts = {"total_steps": float(step[2])}
        return Reading("olmo", step=step_number(step[1]), facts=facts)
    match = _METRIC.match(text)
    value = None if match is None else number(match[2])
    if match is None or value is None:
        return None
    key = _key(match[1].decode())
    return None if key is None else Reading("olmo", [(key, value)], source=StepFrom.LAST)


def _key(name: str) -> str | None:
    known = _NAMES.get(name)
    if known is not None:
        return known
    part, _, rest = name.partition("/")
    if part == "eval" and rest.endswith(_LOSS):
        source = rest.removesuffix(_LOSS).strip("/").replace("/", "_")
        return f"val_loss/{source}" if source else "val_loss"
    return key_of(name)


DIALECT = Dialect(
    "olmo",
    (b"[step=", b"train/", b"optim/", b"throughput/", b"eval/"),
    rb"\[step=\d+/\d+(?:,epoch=\d+)?\]\s*$"
    rb"|^ {2,8}(?:train|optim|throughput|eval)/[\w/.-]+=[-+\dni]",
    lambda text: read(text.strip()),
    needles=(b"throughput/",),
)
