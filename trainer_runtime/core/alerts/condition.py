"""The language of conditions: what an alert is for, in one line.

    condition = METRIC COMPARISON NUMBER ["for" (COUNT | DURATION)]
              | "finding" (CODE | "info" | "warning" | "critical")
              | "state" STATE
              | "silence" DURATION

    METRIC      a metric's key as `trainmaster metrics` names it: val_loss, gpu_util/0
    COMPARISON  > >= < <= == !=
    COUNT       the number of consecutive points that meet it; 1 by default
    DURATION    10m, 1h30m: all points of that period meet it
    CODE        a finding's code (cuda_oom); a severity means that one and those above it
    STATE       preparing running recovering stopping completed failed stopped lost
    silence     a running trainer has reported nothing for that duration

Nothing else is accepted. NaN meets no comparison and breaks no row: `finding nan_loss` is for that.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from trainer_runtime.core.protocol.duration import ACCEPTED as DURATION_ACCEPTED
from trainer_runtime.core.protocol.duration import parse_duration
from trainer_runtime.core.protocol.finding import SEVERITIES

STATES = (
    "preparing",
    "running",
    "recovering",
    "stopping",
    "completed",
    "failed",
    "stopped",
    "lost",
)
COMPARISONS = (">=", "<=", "==", "!=", ">", "<")
LONGEST = 200
_TOKEN = re.compile(r"[<>=!]+|[^\s<>=!]+")
_METRIC = re.compile(r"[A-Za-z_][A-Za-z0-9_./@:-]{0,99}")
_NUMBER = re.compile(r"[-+]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]{1,3})?")
_CODE = re.compile(r"[a-z][a-z0-9_]{1,59}")
_COUNT = re.compile(r"[1-9][0-9]{0,5}")
_RANK: dict[str, int] = {severity: rank for rank, severity in enumerate(SEVERITIES)}
_SHAPE = (
    "Write for example `val_loss > 3.5 for 3`, `finding loss_spike`, `finding critical`, "
    "`state failed` or `silence 10m`."
)


class ConditionError(ValueError):
    """A condition that doesn't parse; `place` is the character (from 1) of the error."""

    def __init__(self, place: int, message: str, fix: str = _SHAPE) -> None:
        super().__init__(f"{message} {fix}")
        self.place = place
        self.message = message
        self.fix = fix


@dataclass(frozen=True, slots=True)
class MetricCondition:
    """`count` consecutive points, or all points of `lasting_s` seconds, satisfy the comparison."""

    key: str
    comparison: str
    limit: float
    count: int = 1
    lasting_s: float | None = None

    def met_by(self, value: float) -> bool | None:
        """Whether a value satisfies the comparison; None for NaN, which compares with nothing."""
        if math.isnan(value):
            return None
        return {
            ">": value > self.limit,
            ">=": value >= self.limit,
            "<": value < self.limit,
            "<=": value <= self.limit,
            "==": value == self.limit,
            "!=": value != self.limit,
        }[self.comparison]


@dataclass(frozen=True, slots=True)
class FindingCondition:
    """A finding of this code; where that is None, one of at least this severity."""

    code: str | None
    severity: str | None

    def met_by(self, code: str, severity: str) -> bool:
        if self.code is not None:
            return code == self.code
        return _RANK.get(severity, 0) >= _RANK.get(self.severity or "info", 0)


@dataclass(frozen=True, slots=True)
class StateCondition:
    """The run comes into this state."""

    state: str


@dataclass(frozen=True, slots=True)
class SilenceCondition:
    """A running trainer reports nothing for `seconds`."""

    seconds: float


Condition = MetricCondition | FindingCondition | StateCondition | SilenceCondition


def parse_condition(text: str) -> Condition:
    """Parse a condition.

    Raises:
        ConditionError: `text` is not a condition; the error gives the position.
    """
    if len(text) > LONGEST:
        raise ConditionError(LONGEST + 1, f"It is longer than {LONGEST} characters.")
    tokens = _Tokens(text)
    first = tokens.take("a metric, or one of finding, state and silence")
    if first not in _BY_WORD or tokens.peek() in COMPARISONS:
        return _metric(tokens, first)
    condition = _BY_WORD[first](tokens)
    tokens.end()
    return condition


def needs_operator(condition: Condition) -> bool:
    """Whether only the client can evaluate it: a host can't know that it is out of contact."""
    return isinstance(condition, StateCondition) and condition.state == "lost"


class _Tokens:
    """The words of a condition, each with its place."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._found: Iterator[re.Match[str]] = _TOKEN.finditer(text)
        self._next = next(self._found, None)
        self.place = 1

    def peek(self) -> str | None:
        return self._next.group() if self._next else None

    def take(self, expected: str) -> str:
        if self._next is None:
            raise ConditionError(len(self._text) + 1, f"It ends where {expected} should stand.")
        self.place = self._next.start() + 1
        word = self._next.group()
        self._next = next(self._found, None)
        return word

    def wrong(self, word: str, expected: str) -> ConditionError:
        return ConditionError(
            self.place, f"At character {self.place} stands {word!r} instead of {expected}."
        )

    def end(self) -> None:
        word = self.peek()
        if word is not None:
            self.take("")
            raise self.wrong(word, "its end")


def _metric(tokens: _Tokens, key: str) -> MetricCondition:
    if not _METRIC.fullmatch(key):
        raise tokens.wrong(key, "a metric's key, or one of finding, state and silence")
    comparison = tokens.take(f"a comparison ({' '.join(COMPARISONS)})")
    if comparison not in COMPARISONS:
        raise tokens.wrong(comparison, f"a comparison ({' '.join(COMPARISONS)})")
    word = tokens.take("a number")
    limit = float(word) if _NUMBER.fullmatch(word) else math.nan
    if not math.isfinite(limit):
        raise tokens.wrong(word, "a number such as 3.5 or 1e-4")
    if tokens.peek() is None:
        return MetricCondition(key, comparison, limit)
    word = tokens.take("for")
    if word != "for":
        raise tokens.wrong(word, "`for`, or its end")
    word = tokens.take("a count of points or a duration")
    count, lasting_s = _how_long(tokens, word)
    tokens.end()
    return MetricCondition(key, comparison, limit, count, lasting_s)


def _how_long(tokens: _Tokens, word: str) -> tuple[int, float | None]:
    if _COUNT.fullmatch(word):
        return int(word), None
    try:
        return 1, parse_duration(word)
    except ValueError:
        raise tokens.wrong(word, "a count of points (3) or a duration (10m)") from None


def _finding(tokens: _Tokens) -> FindingCondition:
    word = tokens.take("a finding's code or a severity")
    if word in SEVERITIES:
        return FindingCondition(None, word)
    if not _CODE.fullmatch(word):
        raise tokens.wrong(word, f"a finding's code, or one of {' '.join(SEVERITIES)}")
    return FindingCondition(word, None)


def _state(tokens: _Tokens) -> StateCondition:
    word = tokens.take("a state")
    if word not in STATES:
        raise tokens.wrong(word, f"one of {' '.join(STATES)}")
    return StateCondition(word)


def _silence(tokens: _Tokens) -> SilenceCondition:
    word = tokens.take("a duration")
    try:
        return SilenceCondition(parse_duration(word))
    except ValueError:
        raise tokens.wrong(word, DURATION_ACCEPTED) from None


_BY_WORD: dict[str, Callable[[_Tokens], Condition]] = {
    "finding": _finding,
    "state": _state,
    "silence": _silence,
}
