"""`step=10 loss=3.2`, `Step 10: loss 3.2`, `Epoch 1/3 - loss: 0.5`: a step and a metric.

The fallback, and therefore the strictest: pairs of names and numbers without a step and a measured
quantity are a configuration.
"""

from __future__ import annotations

import re

from trainer_runtime.core.diagnosis.parse.dialects.dialect import Dialect
from trainer_runtime.core.diagnosis.parse.fields import Pair, in_our_unit
from trainer_runtime.core.diagnosis.parse.names import MEASURED, STEP_NAMES, TOTAL_NAMES, key_of
from trainer_runtime.core.diagnosis.parse.points import EPOCHS, Reading, StepFrom
from trainer_runtime.core.diagnosis.parse.quantities import NUMBER, UNITS, number, step_number

_PAIR = re.compile(
    rb"(?<![\w./@-])([A-Za-z_][\w./@-]*"
    rb"(?: (?i:loss|norm|rate|acc|accuracy|scale|time|ppl|perplexity))?)"
    rb"\]?['\"]?"
    rb"(?: ?[:=] ?['\"]?| +)(?<![\w.])(" + NUMBER + rb")(?:/(\d+))?['\"]?"
    rb"(%|ms|us|s|GiB|GB|MiB|MB)?(?![\w.])"
)
_COUNTED = re.compile(rb"loss (\d+) (" + NUMBER + rb")\s*$")
# A line of its own after that of its step.
_VALIDATION = re.compile(
    rb"(?:validation|val|valid|eval(?:uation)?|dev|test)[ _]loss ?[:=]? ?(" + NUMBER + rb")\s*$",
    re.IGNORECASE,
)
_FILLERS = re.compile(r"(?:with|and|at|has|avg|average|mean) (?=\w)", re.IGNORECASE)
_BATCHES = frozenset(("batch", "batch_idx"))
_NAMED = re.compile(rb"['\"]? ?[:=]")


def read(text: bytes) -> Reading | None:
    if match := _COUNTED.match(text):
        value = number(match[2])
        return (
            None if value is None else Reading("counted", [("loss", value)], step_number(match[1]))
        )
    if match := _VALIDATION.match(text):
        value = number(match[1])
        if value is not None:
            return Reading("key_value", [("val_loss", value)], source=StepFrom.LAST)
    step = batch = target = None
    values: dict[str, float] = {}
    for match in _PAIR.finditer(text):
        name = match[1].decode().lower()
        if name in STEP_NAMES:
            target = float(match[3]) if step is None and match[3] else target
            step = step_number(match[2]) if step is None else step
        elif name in _BATCHES:
            batch = step_number(match[2])
        elif name not in TOTAL_NAMES:
            _add(values, match)
    if not any(key in MEASURED or key.startswith("val_loss") for key in values):
        return None
    if step is None and "epoch" in values:
        step = batch  # beside an epoch it is its number, elsewhere it may be its size
    if step is None:
        if "epoch" not in values or len(values) < 2 or not values["epoch"].is_integer():
            return None
        return Reading(EPOCHS, list(values.items()), step=step_number(b"%d" % values["epoch"]))
    reading = Reading("key_value", list(values.items()), step=step)
    if target and "epoch" not in values:  # beside an epoch it may be the epoch's
        reading.facts["total_steps"] = target
    return reading


def measured_values(text: bytes) -> list[Pair]:
    """The pairs of a text without a step; none unless one of them is measured."""
    values: dict[str, float] = {}
    for match in _PAIR.finditer(text):
        name = match[1].decode().lower()
        if name not in STEP_NAMES and name not in TOTAL_NAMES:
            _add(values, match)
    is_measured = any(key in MEASURED or key.startswith("val_loss") for key in values)
    return list(values.items()) if is_measured else []


def _add(values: dict[str, float], match: re.Match[bytes]) -> None:
    key, value = key_of(_FILLERS.sub("", match[1].decode())), number(match[2])
    if key is None or value is None:
        return
    named = _NAMED.match(match.string, match.end(1)) is not None
    # A word followed by a number is a pair only for known words.
    if not named and key not in MEASURED and key not in ("lr", "epoch"):
        return
    unit = match[4] or b""
    pair: Pair = in_our_unit(key, value, unit if unit in UNITS else b"")
    values.setdefault(*pair)


DIALECT = Dialect("key_value", (), b"", read)
