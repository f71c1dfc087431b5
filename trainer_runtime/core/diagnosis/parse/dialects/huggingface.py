"""HF Trainer 4.x and 5.x, and frameworks that log through it: TRL, axolotl."""

from __future__ import annotations

import math
import re

from trainer_runtime.core.diagnosis.parse.dialects.dialect import Dialect
from trainer_runtime.core.diagnosis.parse.names import STEP_NAMES, key_of
from trainer_runtime.core.diagnosis.parse.points import Reading, StepFrom
from trainer_runtime.core.diagnosis.parse.quantities import NUMBER, number, step_number

# 4.x prints bare floats, 5.x strings of four digits; a callback that prints the values of on_log
# uses JSON or Python's repr, with the step before it.
_LINE = re.compile(rb"(?:on_(?:log|evaluate|train_end) (\d+) )?(\{.*?\})")
_PAIR = re.compile(
    rb"""['"]([^'"\\]{1,80})['"]: (?:(['"])(""" + NUMBER + rb""")\2|(""" + NUMBER + rb"))(?=[,}])"
)
# ms-swift's.
_NAMED_STEP = re.compile(rb"'global_step/max_steps': '(\d+)/(\d+)'")
_OWN_STEP = re.compile(rb"['\"](?:global_)?step['\"]: ['\"]?(\d+)['\"]?[,}]")
_FACT = re.compile(
    rb"(Num update steps per epoch|Total optimization steps|Num examples|Num Epochs"
    rb"|Total train batch size \([^)]*\)) = ([\d,]+)"
)
_SAVED = re.compile(rb"Saving (?:model|JIT) checkpoint (?:to (\S+)|at step (\d+))")
_FACTS = {
    b"Num upd": "steps_per_epoch",
    b"Total o": "total_steps",
    b"Num exa": "examples",
    b"Num Epo": "epochs",
    b"Total t": "batch_samples",
}
# A dictionary with none of these is a configuration.
_METRIC_WORDS = (
    b"'epoch'",
    b'"epoch"',
    b"'loss'",
    b'"loss"',
    b"'eval_",
    b'"eval_',
    b"'train_runtime'",
)
_CLOCK = "huggingface"


def read(text: bytes) -> Reading | None:
    if fact := _FACT.match(text):
        return Reading(_CLOCK, facts={_FACTS[fact[1][:7]]: number(fact[2]) or 0.0})
    if saved := _SAVED.match(text):
        if saved[2]:
            return Reading(_CLOCK, step=step_number(saved[2]), events=[("checkpoint", "")])
        path = saved[1].decode(errors="replace")
        return Reading(_CLOCK, source=StepFrom.LAST, events=[("checkpoint", path)])
    match = _LINE.match(text)
    if match is None or not any(word in match[2] for word in _METRIC_WORDS):
        return None
    values, rounded = _values(match[2])
    if not values:
        return None
    named = _NAMED_STEP.search(match[2])
    own = _OWN_STEP.search(match[2])
    counted = match[1] or next((found[1] for found in (named, own) if found is not None), None)
    step = step_number(counted) if counted else None
    source = StepFrom.LOG if step is None else StepFrom.LINE
    reading = Reading(_CLOCK, values, step=step, source=source, rounded=rounded)
    if named is not None:
        reading.facts["total_steps"] = float(named[2])
    if any(key == "train_loss_mean" for key, _ in values):
        reading.events.append(("completed", ""))
    return reading


def _values(text: bytes) -> tuple[list[tuple[str, float]], bool]:
    found: dict[str, float] = {}
    quoted = False
    summary = b"train_runtime" in text and b"train_loss" in text
    for name, quote, quoted_number, bare in _PAIR.findall(text):
        value = number(quoted_number or bare)
        logged_name = name.decode(errors="replace")
        key = "train_loss_mean" if summary and logged_name == "train_loss" else key_of(logged_name)
        if key is None or value is None or logged_name in STEP_NAMES:
            continue
        if logged_name == "train_samples_per_second" or (
            summary and logged_name == "train_tokens_per_second"
        ):
            key = logged_name  # for the whole training, not for these steps
        found.setdefault(key, value)
        quoted = quoted or bool(quote)
    # logging_nan_inf_filter prints a loss that is not finite as 0.
    if found.get("loss") == 0.0 and math.isnan(found.get("grad_norm", 0.0)):
        found["loss"] = math.nan
    return list(found.items()), quoted


DIALECT = Dialect(
    "huggingface",
    (b"{'", b"on_log ", b"on_evaluate ", b"on_train_end ", b" = ", b"Saving "),
    rb"\bon_(?:log|evaluate|train_end) \d+ \{|(?<!= )(?<!\()\{'[A-Za-z][\w/ ().@-]*': '?[-+\dnNiI]"
    rb"|\bNum update steps per epoch = \d|\bTotal optimization steps = \d"
    rb"|\bNum (?:examples|Epochs) = \d"
    rb"|\bTotal train batch size \([^)]*\) = \d|\bSaving (?:model|JIT) checkpoint (?:to|at step)",
    read,
)
