"""Drafts a pattern from lines of a log that no known form reads."""

from __future__ import annotations

import re
from collections.abc import Sequence

from trainer_runtime.core.diagnosis.parse.names import CANONICAL, MEASURED, STEP_NAMES
from trainer_runtime.core.diagnosis.parse.pattern import PatternError, patterns_of
from trainer_runtime.core.diagnosis.parse.quantities import NUMBER

_LONGEST_LINE = 400
_NUMBER = re.compile(NUMBER.decode())
_WORD_BEFORE = re.compile(r"([A-Za-z][A-Za-z_/.-]*)(?: so far)?(?: (?:is|was|of))?[\W_]{0,4}$")
_COUNTS = re.compile(r"(?i)\d ?/ ?\d|step|iter|batch")  # by a number of unclear meaning
_LEADS = re.compile(r"\s?[:\t|](?!\d)")  # behind a number that begins a line and counts
_UNIT_BEHIND = re.compile(r"[kKMBG]?\s?([A-Za-z]+/[A-Za-z]+)")
_THOUSANDS = re.compile(r"[kKMBG](?=\s?[A-Za-z]+/[A-Za-z])")
_WITHIN_WORD = re.compile(r"[\w.]$")
# Short words of home-made loops, which mean something only beside a step and a loss.
_SHORT = {
    **dict.fromkeys(("it", "i", "s", "b", "batch", "upd", "num_updates", *STEP_NAMES), "step"),
    **dict.fromkeys(("ep", "epoch", "e"), "epoch"),
    **dict.fromkeys(("l", "ce", "xent", "nll", "learn"), "loss"),
    "test": "val_loss",
}


def drafted(lines: Sequence[str]) -> str | None:
    """A pattern for the first of these lines that has a step and a loss by its words, else for the
    first with a loss, which numbers the lines; None where none has, or where it would not read the
    line itself. Text of the log, untrusted."""
    drafts = [_draft(line, counts=counts) for counts in (False, True) for line in lines]
    return next(filter(None, drafts), None)


def _draft(line: str, *, counts: bool) -> str | None:
    parts: list[str] = []
    found: set[str] = set()
    at = known = first = 0
    for number in _NUMBER.finditer(line[:_LONGEST_LINE]):
        before = line[at : number.start()]
        if number.start() and _WITHIN_WORD.search(line[: number.start()]):
            continue  # a digit of a name
        name = _name(line, number, before, found)
        parts += [before, f"{{{name}}}"]
        at = number.end()
        if name != "any":
            first = first if found else len(parts) - 2
            found.add(name)
            thousands = _THOUSANDS.match(line, at)
            parts += [thousands[0]] if thousands and name != "step" else []
            at = thousands.end() if thousands and name != "step" else at
            known = len(parts)
    if "loss" not in found or counts == bool(found & {"step", "epoch"}):
        return None
    if counts and _COUNTS.search(line):
        return None
    text = "".join(parts[first:known]).strip() + (" {count}" if counts else "")
    try:
        patterns = patterns_of(text)
    except PatternError:
        return None
    return text if patterns[0].read(line.encode()) is not None else None


def _name(line: str, number: re.Match[str], before: str, found: set[str]) -> str:
    """What a number is, by the word before it or the unit behind it."""
    if before.strip() in ("/", "of") and "step" in found and "target" not in found:
        return "target"
    if not number.start() and number[0].isdigit() and _LEADS.match(line, number.end()):
        return "step"
    word = _WORD_BEFORE.search(line[: number.start()])
    named = "" if word is None else word[1].lower()
    name = _SHORT.get(named) or CANONICAL.get(named)
    unit = _UNIT_BEHIND.match(line, number.end())
    if name is None and unit is not None:
        name = CANONICAL.get(unit[1].lower())
    if line.startswith("epoch ", number.end()):
        name = "epoch"  # 3epoch results
    elif name in ("step", "epoch") and line[number.end() : number.end() + 1].isalpha():
        return "any"  # a time: 50ms
    if name == "step" and not number[0].isdigit():
        return "any"
    is_known = name in MEASURED or name in ("lr", "epoch", "step")
    return name if name and is_known and name not in found else "any"
