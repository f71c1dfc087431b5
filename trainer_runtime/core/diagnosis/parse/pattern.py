"""Patterns that teach the shape of a log's lines, by example or as a regular expression.

An example is a line with placeholders for its numbers: `it {step}/{target} L={loss} lr {lr}`. A
space stands for any spaces and separators. An expression has named groups instead:
`it (?P<step>\\d+) L=(?P<loss>\\S+)`. Either may match anywhere in a line.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import accumulate

from trainer_runtime.core.diagnosis.parse.expression_cost import MOST_LOOSE, why_unbounded
from trainer_runtime.core.diagnosis.parse.names import CANONICAL, key_of
from trainer_runtime.core.diagnosis.parse.points import EPOCHS, Reading, StepFrom
from trainer_runtime.core.diagnosis.parse.quantities import NUMBER, UNITS, number, step_number
from trainer_runtime.core.diagnosis.pattern_example import EXAMPLE
from trainer_runtime.core.protocol.text import cleaned

MARKS = ("step", "target", "epoch", "epoch_step", "epoch_steps", "rank", "any")
COUNT = "count"  # no number of the log: its lines are counted
OWN = "own_"  # begins the name of a metric that only this log has
LONGEST_PATTERN = 500
_QUOTED = 80
MOST_PATTERNS = 8
# Of a line, an expression sees this much: with few loose repeats its time is bounded.
_EXPRESSION_BYTES = 500
_KEYS = frozenset(CANONICAL) | frozenset(CANONICAL.values())
_NUMBER = NUMBER.decode()
_PLACEHOLDER = re.compile(r"\{([A-Za-z_][\w./-]{0,60})\}")
# What the user says of every line, wherever it stands in the pattern.
_STATED = re.compile(r"\s*\{(?:(epoch_steps)=([1-9]\d{0,8})|(count))\}")
_SEPARATORS = rb"[\s\[\](){}|,;:>*]+"
_THOUSANDS = {b"k": 1e3, b"K": 1e3, b"M": 1e6, b"B": 1e9, b"G": 1e9, b"T": 1e12}
_THOUSANDS_LETTER = re.compile(r"[kKMBGT](?![A-Za-z])")
_UNIT = re.compile(r"(?:ms|us|%|MiB|MB)(?![A-Za-z])")
_WHOLE = rb"(\d{1,3}(?:,\d{3})+|\d+)"
_MOST_ANY = 200  # bytes
_MOST_TRIES = 32  # places in a line where a match may begin
# A group that repeats one character or set can only be the number that it stands for.
_NUMBER_GROUP = re.compile(r"\(\?P<(?!any>)(\w+)>(?:\\[SdDW]|\.|\[[^\]]*\])[+*]\??\)")
_BEGINS_ANYWHERE = re.compile(r"\^?\.\*\??")


class PatternError(ValueError):
    """A pattern can't be used: what is wrong with it, and `fix`. `is_slow`: it may take long."""

    def __init__(self, problem: str, fix: str, *, is_slow: bool = False) -> None:
        super().__init__(problem)
        self.fix = fix
        self.is_slow = is_slow


@dataclass(frozen=True, slots=True)
class Pattern:
    """One kind of line. `names[i]` is what group `groups[i]` of the expression stands for,
    `thousands[i]` the group of a letter such as k behind it, 0 without one, `factors[i]` its
    unit's. `literal`: bytes that every such line has; none for an expression. `parts`: expressions
    that match one after another, with any text between; each is searched from the end of the one
    before, so that the time is bounded. `stated`: marks that are no numbers of the log."""

    text: str
    literal: bytes
    names: tuple[str, ...]
    groups: tuple[int, ...]
    thousands: tuple[int, ...]
    factors: tuple[float, ...]
    most_bytes: int | None
    parts: tuple[re.Pattern[bytes], ...]
    stated: tuple[tuple[str, float], ...] = ()

    def read(self, line: bytes) -> Reading | None:
        """The content of a line; None if it is of another shape, or a number of it is none."""
        if self.literal not in line:
            return None
        match = self._groups(line[: self.most_bytes])
        if match is None:
            return None
        marks = dict(self.stated)
        values: dict[str, float] = {}
        slots = zip(self.names, self.groups, self.thousands, self.factors, strict=True)
        for name, group, thousands, factor in slots:
            text = match[group]
            if text is None or name == "any":
                continue
            value = number(text) if name not in MARKS else _mark(name, text)
            if value is None:
                return None
            if name in MARKS:
                marks[name] = value
            else:
                letter = match[thousands] if thousands else None
                values[name] = value * (_THOUSANDS[letter] if letter else factor)
        return _reading(marks, values)

    def _groups(self, line: bytes) -> list[bytes | None] | None:
        """The groups of all parts, from number 1 on; None where they do not match."""
        begin = 0
        for _ in range(_MOST_TRIES):
            found: list[bytes | None] = [None]
            at = begin
            for part in self.parts:
                match = part.search(line, at)
                if match is None:
                    return None
                if part is self.parts[0]:
                    begin = match.start() + 1
                elif match.start() - at > _MOST_ANY:
                    break
                found += match.groups()
                at = match.end()
            else:
                return found
        return None


def taught(text: str | None) -> tuple[Pattern, ...]:
    """The patterns that a run's configuration holds; none where it holds none.

    Raises:
        PatternError: see `patterns_of`.
    """
    return () if text is None else patterns_of(text)


def patterns_of(text: str) -> tuple[Pattern, ...]:
    """The patterns of a text, one on each line.

    Raises:
        PatternError: one of them can't be used, or none gives the loss a step.
    """
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    if not lines:
        raise PatternError("is empty", f"Write a line of the log with placeholders: {EXAMPLE}")
    if len(lines) > MOST_PATTERNS:
        raise PatternError(
            f"has {len(lines)} lines", f"Teach at most {MOST_PATTERNS} kinds of line."
        )
    patterns = tuple(map(_pattern, lines))
    named = {name for pattern in patterns for name in pattern.names}
    named |= {name for pattern in patterns for name, _ in pattern.stated}
    if "loss" in named and not named & {"step", "epoch", "epoch_step", COUNT}:
        raise PatternError(
            "has a loss but no step",
            "Add {step}, or {epoch} where the log counts only epochs: a step is not guessed. Where "
            "it has neither, {count} numbers its lines.",
        )
    return patterns


def _pattern(text: str) -> Pattern:
    if len(text) > LONGEST_PATTERN:
        raise PatternError(
            f"has {len(text)} characters", f"Use at most {LONGEST_PATTERN}; leave the rest out."
        )
    stated = tuple((match[1] or COUNT, float(match[2] or 0)) for match in _STATED.finditer(text))
    plain = _STATED.sub("", text).strip()
    make = _of_expression if "(?P<" in text else _of_example
    pattern = make(plain)
    _require_fitting(pattern.names + tuple(name for name, _ in stated), text)
    return replace(pattern, text=text, stated=stated)


def _quoted(text: str) -> str:
    """The pattern's beginning as it was written: `repr` would double its backslashes."""
    return f"'{cleaned(text, _QUOTED)}'"


def _of_example(text: str) -> Pattern:
    found = list(_PLACEHOLDER.finditer(text))
    if not found:
        raise PatternError(
            f"{_quoted(text)} has no placeholder",
            f"Replace the numbers of a line of the log by their names: {EXAMPLE}",
        )
    slots: list[_Slot] = []
    parts: list[bytes] = [b""]
    literals, at = list[str](), 0
    for match in found:
        before = text[at : match.start()]
        if slots and not before:
            raise PatternError(
                f"{_quoted(text)} has two placeholders side by side",
                "Leave the text between them as the log has it, or a space.",
            )
        slot = _slot(_name(match[1]), text, match.end())
        at = slot.end
        literals += before.split()
        parts[-1] += _literal(before)
        slots.append(slot)
        if slot.name == "any":
            parts.append(b"")
            continue
        is_first = not text[: match.start()].strip()
        parts[-1] += _placeholder(slot.name, is_first=is_first)
        parts[-1] += b"([kKMBGT])?" if slot.has_thousands else b""
    parts[-1] += _literal(text[at:])
    literals += text[at:].split()
    slots = [slot for slot in slots if slot.name != "any"]
    names = [slot.name for slot in slots]
    groups = list(accumulate((1 + slot.has_thousands for slot in slots), initial=1))
    return Pattern(
        text,
        max(literals, key=len, default="").encode(),
        _each_once(names, text),
        tuple(groups[:-1]),
        tuple(
            group + 1 if slot.has_thousands else 0
            for slot, group in zip(slots, groups[:-1], strict=True)
        ),
        tuple(slot.factor for slot in slots),
        None,
        tuple(re.compile(part) for part in parts if part),
    )


@dataclass(frozen=True, slots=True)
class _Slot:
    """A placeholder of an example with the unit behind it; the rest begins at `end`."""

    name: str
    has_thousands: bool  # 12.3k
    factor: float
    end: int


def _slot(name: str, text: str, end: int) -> _Slot:
    thousands = None if name in MARKS else _THOUSANDS_LETTER.match(text, end)
    if thousands is not None:
        return _Slot(name, True, 1.0, thousands.end())
    return _Slot(name, False, _factor(name, text, end), end)


def _of_expression(text: str) -> Pattern:
    begun = _BEGINS_ANYWHERE.match(text)
    searched = text[begun.end() :] if begun else text
    why = why_unbounded(_NUMBER_GROUP.sub(r"(?P<\1>[0-9])", searched))
    if why is not None:
        raise PatternError(
            f"{_quoted(text)} {why}, which may take without bound",
            f"Use at most {MOST_LOOSE} such as .*, sets such as [\\d.]+ for numbers, and repeat no "
            f"group; or give an example instead: {EXAMPLE}",
            is_slow=True,
        )
    searched = _NUMBER_GROUP.sub(_whole_number, searched)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            compiled = re.compile(searched.encode())
    except (re.error, RecursionError, OverflowError) as error:
        raise PatternError(
            f"{_quoted(text)} is not a regular expression: {error}",
            f"Correct it, or give an example instead: {EXAMPLE}",
        ) from None
    named = sorted(compiled.groupindex.items(), key=lambda item: item[1])
    names = [_name(name) for name, _ in named]
    if compiled.search(b"") is not None:
        raise PatternError(
            f"{_quoted(text)} matches the empty line", "Write the text around the numbers."
        )
    return Pattern(
        text,
        b"",
        _each_once(names, text),
        tuple(group for _, group in named),
        (0,) * len(names),
        (1.0,) * len(names),
        _EXPRESSION_BYTES,
        (compiled,),
    )


def _whole_number(group: re.Match[str]) -> str:
    """The group for a number that is taken whole, so that no part of it is tried."""
    number_of_it = r"\d+" if group[1] in MARKS and group[1] != "epoch" else _NUMBER
    return rf"(?P<{group[1]}>(?<!\d){number_of_it}(?!\d))"


def _name(name: str) -> str:
    """The mark or metric key that a placeholder stands for."""
    if name in MARKS:
        return name
    if name.lower() in _KEYS or name.partition("/")[0] in _KEYS:
        return key_of(name) or name
    own = key_of(name.removeprefix(OWN)) if name.startswith(OWN) else None
    if own:
        return own
    raise PatternError(
        f"names {{{name}}}, which is not known",
        f"Placeholders are {', '.join(MARKS)}; metrics such as loss, val_loss, lr, grad_norm, "
        f"tokens_per_s, step_time_s; and {OWN}NAME for a metric of your own.",
    )


def _each_once(names: Sequence[str], text: str) -> tuple[str, ...]:
    for name in names:
        if name != "any" and names.count(name) > 1:
            raise PatternError(
                f"{_quoted(text)} has {{{name}}} twice", "Use {any} for what is not to be read."
            )
    return tuple(names)


def _require_fitting(names: Sequence[str], text: str) -> None:
    marks = set(names)
    if not marks - {"any", "target", "rank", "epoch_steps", COUNT}:
        raise PatternError(
            f"{_quoted(text)} names nothing to read", f"Name at least a metric: {EXAMPLE}"
        )
    if ("epoch_step" in marks) != ("epoch_steps" in marks and "epoch" in marks):
        raise PatternError(
            f"{_quoted(text)} has {{epoch_step}} without {{epoch}} and {{epoch_steps}}",
            "A step within an epoch needs the epoch, and how many steps one has: {epoch_steps=500} "
            "where the log does not say it.",
        )


def _literal(text: str) -> bytes:
    words = re.split(r"\s+", text)
    return _SEPARATORS.join(re.escape(word.encode()) for word in words)


def _placeholder(name: str, *, is_first: bool) -> bytes:
    begins = rb"(?<![\w.])" if is_first else b""
    if name in MARKS:
        return begins + rb"\s*" + (_WHOLE if name != "epoch" else b"(" + NUMBER + b")") + rb"(?!\d)"
    return begins + rb"\s*(" + NUMBER + rb")(?![\d])"


def _factor(name: str, text: str, end: int) -> float:
    """The factor of the unit that follows a placeholder."""
    unit = _UNIT.match(text, end)
    if unit is None:
        return 1.0
    fits = (unit[0] in ("ms", "us") and name.endswith("_s")) or (unit[0] == "%" and name == "mfu")
    fits = fits or (unit[0] in ("MiB", "MB") and name.endswith("_gib"))
    return UNITS[unit[0].encode()] if fits else 1.0


def _mark(name: str, text: bytes) -> float | None:
    return number(text) if name == "epoch" else step_number(text)


def _reading(marks: dict[str, float], values: dict[str, float]) -> Reading | None:
    """What a line says, where its placeholders are these numbers."""
    found = list(values.items())
    if "epoch" in marks and marks["epoch"] == marks["epoch"]:
        found.append(("epoch", marks["epoch"]))
    reading = Reading("pattern", found, step=marks.get("step"), taught=True)
    if "epoch_step" in marks:
        reading.step, reading.counts_epochs = marks["epoch_step"], True
        reading.laps, reading.lap_steps = marks["epoch"], marks["epoch_steps"]
    elif reading.step is None and "epoch" in marks:
        if not marks["epoch"].is_integer():
            return None
        reading.clock, reading.step = EPOCHS, marks["epoch"]
    elif reading.step is None:
        reading.source = StepFrom.COUNT if COUNT in marks else StepFrom.LAST
    if marks.get("target"):
        reading.facts["total_steps"] = marks["target"]
    if "rank" in marks:
        reading.rank = int(marks["rank"])
    return reading
