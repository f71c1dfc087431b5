"""`step=10 loss=3.2`, `Step 10: loss 3.2`, `Epoch 1/3 - loss: 0.5`: a step and a metric.

The fallback, and therefore the strictest: pairs of names and numbers without a step and a measured
quantity are a configuration.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import lru_cache

from trainer_runtime.core.diagnosis.parse.dialects.dialect import Dialect
from trainer_runtime.core.diagnosis.parse.fields import Pair, in_our_unit
from trainer_runtime.core.diagnosis.parse.names import (
    MEASURED,
    STEP_NAMES,
    TOTAL_NAMES,
    held_out_key,
    is_loss_by_another_name,
    key_of,
)
from trainer_runtime.core.diagnosis.parse.points import (
    BATCHES,
    BELOW_COUNTER,
    EPOCHS,
    UNNAMED,
    WITHIN_EPOCHS,
    Heading,
    Reading,
    StepFrom,
)
from trainer_runtime.core.diagnosis.parse.quantities import NUMBER, UNITS, number, step_number

_PAIR = re.compile(
    rb"(?<![\w./@-])([A-Za-z_][\w./@-]*"
    rb"(?: (?i:loss|norm|rate|acc|accuracy|scale|time|ppl|perplexity))?)"
    rb"\]?['\"]?"
    rb"(?:(?: is)? ?[:=] {0,12}['\"]?| +(?:is |#)?)(?<![\w.])(" + NUMBER + rb")(?:/(\d+))?['\"]?"
    rb"(%|ms|us|s|GiB|GB|MiB|MB)?(?![\w.])"
)
# `loss 100: 2.5`, `Training loss (for one batch) at step 9: 2.5`, `Cost after iteration 9: 2.5`.
_COUNTED = re.compile(
    rb"(?:(?:average|mean) )?(?:(?P<held>val|valid|validation|test) )?(?:train(?:ing)? )?"
    rb"(?:loss|cost)"
    rb"(?: \([^():]{1,40}\))?(?: (?:at|after))?(?: (?:(?:global[ _])?step|iter|iteration|update"
    rb"|(?P<epoch>epoch)))? (?P<count>\d+)(?:/\d+)?(?: (?:steps|iterations|iters|updates))?"
    rb" ?[:=]? +(?P<value>" + NUMBER + rb")(?=\s*$| grad[ _]norm )",
    re.IGNORECASE,
)
# What a logger writes before a line that has nothing else.
_TIME = rb"(?:\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d(?:[.,]\d+)?:? )?(?:[-|] )?(?:INFO(?: [-|]|:) )?"
# A line of its own after that of its step.
_VALIDATION = re.compile(
    _TIME
    + rb"(?:validation|val|valid|eval(?:uation)?|dev|test)[ _]loss ?[:=]? ?("
    + NUMBER
    + rb")\s*$",
    re.IGNORECASE,
)
# Printed source: an assignment of a first value, and lines of Python.
_SOURCE = re.compile(
    rb"\w+ = (?:-?0\.?0*|-?1|1e\d+)\s*$"
    rb"|(?:def|class|if|elif|for|while|return|assert|with|import|from|print\d*|raise|try|except)\b.*"
    rb"[:()=]|\w[\w., ]* [-+*/]?= ?[\w.]*[({\[]|[\w.]+\(.*\)\s*$|#|@\w"
)
_FILLERS = re.compile(r"(?:with|and|at|has|avg|average|mean) (?=\w)", re.IGNORECASE)
# A best value, such as the one before `best val loss: 0.5`, belongs to another step; a total one,
# as in `total training loss 4030.7`, is a sum.
_BEST = re.compile(rb"\b(?:best|lowest|minimum|total)(?:[ _]\w+){0,2}\W{0,3}$", re.IGNORECASE)
_BATCHES = frozenset(("batch", "batch_idx", "batch_id"))
_NAMED = re.compile(rb"['\"]? ?[:=]")
_EITHER = re.compile(
    rb"(?<![\w/.])(?:(?P<held>val|valid|validat(?:ion|ing|e)|evals?|evaluat(?:ion|ing|e)|test(?:ing)?"
    rb"|dev|cv|saving dict)|(?P<train>train(?:ing)?))(?![\w/.-])",
    re.IGNORECASE,
)
_BETWEEN_PAIRS = b" ,;:|/()[]{}'\""
_OF_EITHER = (b"train", b"val", b"test", b"dev", b"cv", b"saving dict")
# In `eval after train step 9` it says which step is meant, not what was measured.
_OF_THE_STEP = re.compile(rb"\btrain(?:ing)? +$", re.IGNORECASE)
# What a logger writes before a message: times, levels, names, in any case no words of a sentence.
_PREFIX = rb"(?:^|[\])>|:-] )[*=#> -]*"
_EVALUATES = re.compile(
    _PREFIX
    + rb"(?:val|valid|validation|eval|evaluation|test)(?: (?:set|results?))?(?: \||[:\]]| -)",
    re.IGNORECASE,
)
# How far an epoch is: of its samples or batches.
_SAMPLES = re.compile(rb"\[ *\d+ ?/ ?\d+ *\]|\b\d+/\d+ ?\(")
_BRACKETS = re.compile(rb"(\bepoch:?) ?[\[(] ?(\d+(?:/\d+)?) ?[\])]", re.IGNORECASE)
_TWO_BRACKETS = re.compile(rb"(\bepoch:?) ?\[(\d+)\] ?\[ *(\d+) *\]", re.IGNORECASE)
_WORDS = re.compile(rb"[A-Za-z]{2,} +[A-Za-z]{2,} +$")
_EPOCH_ALONE = re.compile(
    _TIME
    + rb"[-=*# ]*(?:(?:start|beginning)(?:ing)? (?:of )?)?epoch(?: ?[:=#] ?| )(\d+)[-=*#:. ]*$",
    re.IGNORECASE,
)
_COUNTER = re.compile(
    _PREFIX + rb"\[?(?:\w+ (?:\| )?)?(?:(?:global_)?step|iter|iterations?|batch)(?: ?[=:#] *| )"
    rb"(\d{1,3}(?:,\d{3})+|\d+)(?:/\d+| / [\d,]+)?(?: \(\d{1,3}(?:\.\d+)?%\))?"
    rb"(?:[\]:. *=#-]*$|(?: \||,)? [a-z]+\b.*$)",
    re.IGNORECASE,
)
# Counters in brackets, without a name: before all pairs, of an epoch and a batch, or behind them.
_UNNAMED = re.compile(
    rb"(?:(?:^|[\])>|:-] )\[ *(\d+)(?:, *(\d+)| \| [\d.:]+)? *\]:? +"
    rb"(?=[A-Za-z_][\w/ -]{0,40}(?: ?[:=]| ) ?[-+\d])"
    rb"|^ *(\d+):? +(?=(?:train(?:ing)?[ _])?[Ll]oss\b))"
)
# A row of a frame that holds one number, `| loss | 2.5 |`.
_BOXED = re.compile(rb"\| *([A-Za-z_][\w/ ]{0,60}?) *\| *([-+\d.eE,]+) *\|$")
# A name and its number with a line of dots between, alone on a line.
_LEADERS = re.compile(
    rb"[ >]*([A-Za-z][\w /()-]{0,60}?) \.{2,} +(" + NUMBER + rb")(?: +\(\w+\))?\s*$"
)
# A counter, then numbers with their names behind them: `9 41.0 ms run, 2.50 loss, 0.1 LR`.
_NAMED_BEHIND = re.compile(
    rb" *(\d+):? +(?=.*\d loss(?:,|\s*$))"
    rb"(?:" + NUMBER + rb"%? [A-Za-z][\w /]{0,40}(?:, +|\s*$)){3,}"
)
_NUMBER_AND_NAME = re.compile(rb"(" + NUMBER + rb") ([A-Za-z][\w /]{0,40})(?=,|\s*$)")
_BEHIND = re.compile(rb"[\[(] *(\d+) ?/ ?(\d+) *[\])]\s*$")


def read(text: bytes) -> Reading | None:
    if _SOURCE.match(text):
        return None
    if match := _COUNTED.match(text):
        return _counted(match)
    if match := _VALIDATION.match(text):
        value = number(match[1])
        if value is not None:
            return Reading("key_value", [("val_loss", value)], source=StepFrom.LAST)
    if match := _LEADERS.match(text):
        return _on_a_line(match)
    if match := _NAMED_BEHIND.fullmatch(text):
        return _named_behind(match)
    if text.startswith(b"|"):
        text = _BOXED.sub(rb"\1: \2", text)
    if b"poch" in text or b"POCH" in text:
        text = _BRACKETS.sub(rb"\1 \2", _TWO_BRACKETS.sub(rb"\1 \2 batch \3 ", text))
    pairs = _Pairs.of(text)
    reading = _of_pairs(text, pairs) if pairs.are_measured else _under_counter(text, pairs)
    if reading is not None and "loss" in pairs.values:
        reading.loss_as = pairs.loss_as
    return reading


def _counted(match: re.Match[bytes]) -> Reading | None:
    value, count = number(match["value"]), step_number(match["count"])
    if value is None or count is None:
        return None
    pair = ("val_loss" if match["held"] else "loss", value)
    if match["epoch"]:
        return Reading(EPOCHS, [("epoch", count), pair], step=count)
    return Reading("counted", [pair], step=count)


def _on_a_line(match: re.Match[bytes]) -> Reading | None:
    key, value = key_of(match[1].decode()), number(match[2])
    if value is None or key not in ("loss", "val_loss"):
        return None
    if key == "val_loss":
        return Reading("key_value", [(key, value)], source=StepFrom.LAST)
    return Reading(BELOW_COUNTER, [(key, value)], source=StepFrom.ABOVE)


def _named_behind(match: re.Match[bytes]) -> Reading | None:
    values: dict[str, float] = {}
    for digits, name in _NUMBER_AND_NAME.findall(match[0], match.end(1)):
        key, value = key_of(name.decode()), number(digits)
        if value is not None and (key in MEASURED or key == "lr"):
            values.setdefault(str(key), value)
    if "loss" not in values:
        return None
    return Reading(UNNAMED, list(values.items()), step=step_number(match[1]))


def _of_pairs(text: bytes, pairs: _Pairs) -> Reading | None:
    values = pairs.values
    if pairs.step is not None:
        return _at_step(pairs, values)
    if "epoch" not in values:
        return _unnamed(text, pairs, values) or _below(text, pairs, values)
    if pairs.batch is not None:  # beside an epoch it is its number, elsewhere it may be its size
        return _in_epoch(pairs, values)
    if len(values) < 2 or not values["epoch"].is_integer() or _SAMPLES.search(text, pairs.begin):
        return None
    return Reading(EPOCHS, list(values.items()), step=step_number(b"%d" % values["epoch"]))


def _unnamed(text: bytes, pairs: _Pairs, values: dict[str, float]) -> Reading | None:
    """A line with a counter in brackets that has no name."""
    if pairs.batch is not None or pairs.target is not None:
        return None
    if match := _UNNAMED.search(text):
        if match[2]:
            in_epoch = [("epoch", float(match[1])), *values.items()]
            return Reading(WITHIN_EPOCHS, in_epoch, step=step_number(match[2]))
        return Reading(UNNAMED, list(values.items()), step=step_number(match[1] or match[3]))
    behind = _BEHIND.search(text, pairs.end)
    if behind is None or _BEHIND.search(text, 0, behind.start()) or "loss" not in values:
        return None
    reading = Reading("key_value", list(values.items()), step=step_number(behind[1]))
    reading.lap_steps = float(behind[2])  # of an epoch, or of the training
    return reading


def _in_epoch(pairs: _Pairs, values: dict[str, float]) -> Reading | None:
    if pairs.target is None:
        return Reading(WITHIN_EPOCHS, list(values.items()), step=pairs.batch)
    reading = Reading("key_value", list(values.items()), step=pairs.batch, counts_epochs=True)
    reading.laps, reading.lap_steps = values["epoch"], pairs.target
    return reading


def _at_step(pairs: _Pairs, values: dict[str, float]) -> Reading | None:
    reading = Reading("key_value", list(values.items()), step=pairs.step)
    if pairs.target is None:
        return reading
    if pairs.counts_evaluation:
        return None
    if "epoch" not in values:  # beside an epoch it may be the epoch's
        reading.facts["total_steps"] = reading.lap_steps = pairs.target
    return reading


def _below(text: bytes, pairs: _Pairs, values: dict[str, float]) -> Reading | None:
    """A line without any counter: of an evaluation at the step above, or directly below a line that
    names the step."""
    if pairs.batch is not None and pairs.target is not None and "loss" in values:
        reading = Reading(BATCHES, list(values.items()), step=pairs.batch)
        reading.lap_steps = pairs.target  # of an epoch, or of the training
        return reading
    if pairs.batch is not None or pairs.target is not None or _SAMPLES.search(text, 0, pairs.begin):
        return None
    if "val_loss" in values and "loss" not in values and _EVALUATES.search(text, 0, pairs.begin):
        return Reading("key_value", list(values.items()), source=StepFrom.LAST)
    if ("loss" in values or "val_loss" in values) and not _WORDS.search(text, 0, pairs.begin):
        return Reading(BELOW_COUNTER, list(values.items()), source=StepFrom.ABOVE)
    return None


def _under_counter(text: bytes, pairs: _Pairs) -> Reading | None:
    """A line that names the step of the line below it, or the epoch of all lines below."""
    if epoch := _EPOCH_ALONE.match(text):
        reading = Reading("epoch", step=step_number(epoch[1]), heads=Heading.EPOCH)
        reading.lap_steps = 0.0
        return reading
    match = _COUNTER.search(text)
    if match is None or "epoch" in pairs.values:
        return None
    step = step_number(match[1].replace(b",", b""))
    return Reading("counter", step=step, heads=Heading.COUNTER)


def measured_values(text: bytes) -> list[Pair]:
    """The pairs of a text without a step; none unless one of them is measured."""
    return measured(text)[0]


def measured(text: bytes) -> tuple[list[Pair], str]:
    """The pairs of a text without a step, and what it calls its loss (see `Reading.loss_as`)."""
    pairs = _Pairs.of(text)
    return (list(pairs.values.items()), pairs.loss_as) if pairs.are_measured else ([], "")


@dataclass(frozen=True, slots=True)
class _Name:
    """A pair's name in small letters, and the key of its metric, None where it is none."""

    lower: str
    key: str | None
    is_held_out: bool


@lru_cache(maxsize=4096)  # a log repeats its names
def _name(text: bytes) -> _Name:
    name = text.decode()
    is_held_out = (key_of(name) or "").startswith("val_")
    return _Name(name.lower(), key_of(_FILLERS.sub("", name)), is_held_out)


@dataclass(slots=True)
class _Pairs:
    """The pairs of a line: its counters, its metrics by key. `begin`: of the first pair, `end`:
    of the last. `counts_evaluation`: the step is one of an evaluation. `loss_as`: see `Reading`."""

    values: dict[str, float] = field(default_factory=dict)
    step: float | None = None
    batch: float | None = None
    target: float | None = None
    begin: int = 0
    end: int = 0
    loss_as: str = ""
    counts_evaluation: bool = False

    @classmethod
    def of(cls, text: bytes) -> _Pairs:
        pairs, held_out, at = cls(), False, 0
        matches = [(match, _name(match[1])) for match in _PAIR.finditer(text)]
        # Where a line names the loss of its validation, another one is that of the training.
        names_both = any(name.is_held_out for _, name in matches)
        pairs.begin = matches[0][0].start() if matches else 0
        for match, name in matches:
            counts = name.lower in STEP_NAMES
            between, at = text[at : match.start()], match.end()
            if between.strip(_BETWEEN_PAIRS):  # in most texts there are no words
                if counts:
                    between = _OF_THE_STEP.sub(b"", between)
                held_out = not names_both and evaluates(between, held_out)
                if not counts and _BEST.search(between):
                    continue
            pairs._add(match, name, held_out)
        pairs.end = at
        pairs._name_loss(names_both)
        return pairs

    @property
    def are_measured(self) -> bool:
        return any(
            key in MEASURED or key == "val_accuracy" or key.startswith("val_loss")
            for key in self.values
        )

    def _add(self, match: re.Match[bytes], name: _Name, held_out: bool) -> None:
        target = float(match[3]) if match[3] else None
        if name.lower in STEP_NAMES:
            if self.step is None:
                self.step, self.target = step_number(match[2]), target
                self.counts_evaluation = held_out
        elif name.lower in _BATCHES:
            self.batch = step_number(match[2])
            self.target = self.target if target is None else target
        elif name.lower not in TOTAL_NAMES:
            own = {} if held_out and "train" not in name.lower else self.values
            if "loss" not in own and "train" in name.lower:
                self.loss_as = "train_loss"
            _add_metric(own, match, name.key)
            for key, value in own.items() if own is not self.values else ():
                self.values.setdefault(held_out_key(key), value)

    def _name_loss(self, names_both: bool) -> None:
        """See whether the loss may be an estimate, beside one of a validation, or a mean."""
        self.values, as_mean = with_loss(self.values)
        if names_both and self.loss_as:
            self.loss_as = "train_loss_eval"
        if "loss" not in self.values:
            self.loss_as = ""
        self.loss_as = as_mean or self.loss_as


def with_loss(values: dict[str, float]) -> tuple[dict[str, float], str]:
    """The values, with one of them as the loss where none has that name, and its own name."""
    if "loss" in values or any(key.startswith("val_") for key in values):
        return values, ""
    own = next(filter(is_loss_by_another_name, values), "")
    return {"loss" if key == own else key: value for key, value in values.items()}, own


def evaluates(text: bytes, otherwise: bool = False) -> bool:
    """Whether what follows these words was measured on held-out data: the last word of either kind
    decides."""
    lower = text.lower()
    if not any(map(lower.__contains__, _OF_EITHER)):  # in most texts, and found much faster
        return otherwise
    words = [match.lastgroup for match in _EITHER.finditer(text)]
    return words[-1] == "held" if words else otherwise


def _add_metric(values: dict[str, float], match: re.Match[bytes], key: str | None) -> None:
    value = number(match[2])
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
