"""A line's shape, learnt once, by which its like are read in bulk.

The shape of a line is the line with every digit as 0. What a token of digits stands for is found
out by asking: it is replaced by other numbers and the line is read again. A token that nothing
depends on is passed over; one that a single value follows in proportion is that value's column; any
other must stay as it was. So nothing here knows of dialects, and what is read in bulk is what the
line's reader would have said.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from trainer_runtime.core.diagnosis.parse.points import Reading, StepFrom
from trainer_runtime.core.diagnosis.parse.quantities import UNITS, number

Reader = Callable[[bytes], list[Reading]]

ZEROS = bytes.maketrans(b"123456789", b"000000000")
_EXPONENT = re.compile(rb"\d[eE][-+]?\d")
_THOUSANDS = re.compile(rb"\d,\d")
# Its like without the sign would be one number, with a comma between thousands.
_SIGN_AFTER_COMMA = re.compile(rb"\d,[-+.]")
_PLAIN = re.compile(rb"[-+]?\d+(?:,\d{3})*(?:\.\d*)?(?:[eE][-+]?\d+)?")
_FILL = re.compile(rb"\|(?:\xe2[\x94-\x96][\x80-\xbf]|[ #])*\|")
# Other digits than a token's own, never 0, so that no value loses a place.
_OTHER_DIGITS = (
    bytes.maketrans(b"0123456789", b"4725183694"),
    bytes.maketrans(b"0123456789", b"2618394755"),
)


@dataclass(frozen=True, slots=True)
class Column:
    """A value of every row: token number `index` times `scale`; `index` None: `value` in all."""

    index: int | None
    scale: float
    value: float = 0.0

    def of(self, tokens: list[bytes], width: int, rows: int) -> list[float]:
        if self.index is None:
            return [self.value] * rows
        values = list(map(float, tokens[self.index :: width]))
        if self.scale != 1.0:
            return [value * self.scale for value in values]
        return values


# What a token may be beside a value: fields of a reading.
MARKS = ("step", "micro", "laps", "lap_steps", "rank")


@dataclass(slots=True, eq=False)
class Template:
    """One kind of line. `shape` matches the shapes of all lines that it reads."""

    like: Reading
    shape: re.Pattern[bytes]
    lines: re.Pattern[bytes]  # the same for lines as they are, many at once
    table: bytes
    delete: bytes
    width: int
    columns: dict[str, Column]
    marks: dict[str, Column]
    fixed: list[tuple[int, bytes]]

    def tokens(self, text: bytes, rows: int) -> list[bytes] | None:
        """The tokens of `rows` lines of this shape; None if one isn't what it must be."""
        found = text.translate(self.table, self.delete).split()
        if len(found) != rows * self.width:
            return None
        for index, must_be in self.fixed:
            if found[index :: self.width].count(must_be) != rows:
                return None
        return found


def learn(line: bytes, reading: Reading, read: Reader) -> Template | None:
    """The template of `line`, which `read` reads as `reading`; None if it can't be had in bulk."""
    if reading.events or (reading.source is StepFrom.LINE and reading.step is None):
        return None
    if _SIGN_AFTER_COMMA.search(line):
        return None
    return _Learner(line, reading, read).template()


class _Learner:
    """What is asked of the reader about one line."""

    def __init__(self, line: bytes, reading: Reading, read: Reader) -> None:
        self._line, self._reading, self._read = line, reading, read
        self._exponents = _EXPONENT.search(line) is not None
        self._delete = b"," if _THOUSANDS.search(line) else b""
        kept = b"0123456789.+-" + (b"eE" if self._exponents else b"")
        self._table = bytes(c if c in kept or c == 10 else 32 for c in range(256))
        run = re.compile(b"[" + re.escape(kept + self._delete) + b"]+")
        self._spans = [
            (match.start() + _led(match[0]), match.end() - _trailed(match[0]))
            for match in run.finditer(line)
            if match[0].strip(b",")
        ]
        # Of tokens that vary: what they are (None: nothing depends on them) and at what scale.
        self._roles: dict[int, tuple[str, float] | None] = {}
        self._fixed: list[tuple[int, bytes]] = []

    def template(self) -> Template | None:
        tokens = self._line.translate(self._table, self._delete).split()
        if len(tokens) != len(self._spans) or not tokens:
            return None
        for index, token in enumerate(tokens):
            self._settle(index, token)
        if not self._roles and not self._fixed:
            return None
        columns = {key: Column(None, 1.0, value) for key, value in self._reading.values}
        marks: dict[str, Column] = {}
        for index, role in self._roles.items():
            if role is not None:
                place = marks if role[0] in MARKS and role[0] not in columns else columns
                place[role[0]] = Column(index, role[1])
        told = [mark for mark in MARKS if getattr(self._reading, mark) not in (None, 0)]
        if any(mark not in marks and mark != "rank" for mark in told):
            return None
        forms, spaces_vary = self._forms(), self._spaces_vary()
        shape = re.compile(self._pattern(forms, spaces_vary, b"0"))
        if not shape.fullmatch(self._line.translate(ZEROS)):
            return None
        return Template(
            self._reading,
            shape,
            re.compile(b"^" + self._pattern(forms, spaces_vary, rb"\d") + b"$", re.MULTILINE),
            self._table,
            self._delete,
            len(tokens),
            columns,
            marks,
            self._fixed,
        )

    def _settle(self, index: int, token: bytes) -> None:
        """Find out what token `index` is."""
        start, stop = self._spans[index]
        text = self._line[start:stop]
        if not any(48 <= byte < 58 for byte in text):
            return
        others = [_varied(text, table) for table in _OTHER_DIGITS]
        readings = [self._with({index: other}) for other in others]
        if all(_equal(reading, self._reading) for reading in readings):
            if _PLAIN.fullmatch(text):
                self._roles[index] = None
            return
        role = self._role(text, others, readings) if _PLAIN.fullmatch(text) else None
        if role is None:
            self._fixed.append((index, token))
        else:
            self._roles[index] = role

    def _role(
        self, text: bytes, others: list[bytes], readings: list[Reading | None]
    ) -> tuple[str, float] | None:
        """What follows the token in proportion, if it is one thing alone."""
        changed = _changed(self._reading, readings[0])
        base = number(others[0])
        if changed is None or not base:
            return None
        role = changed[0], _nice(changed[1] / base)
        for other, reading in ((text, self._reading), *zip(others, readings, strict=True)):
            if not _equal(reading, _set(self._reading, role, other)):
                return None
        return role

    def _pattern(self, forms: dict[int, bytes], spaces_vary: bool, digit: bytes) -> bytes:
        parts, end = [], 0
        for index, (start, stop) in enumerate(self._spans):
            parts.append(_literal(self._line[end:start], spaces_vary))
            exact = re.escape(self._line[start:stop].translate(ZEROS))
            parts.append(forms.get(index, exact).replace(b"0", digit))
            end = stop
        return b"".join([*parts, _literal(self._line[end:], False)])

    def _forms(self) -> dict[int, bytes]:
        """For each token that varies an expression, in zeros, for the forms that it may take."""
        named = {i: role[0] if role else "" for i, role in self._roles.items()}
        free = [i for i, name in named.items() if name != "rank"]
        other = [i for i in free if named[i] not in MARKS]
        whole = self._fitting(free, b"7", b"38")
        grouped = self._fitting(other, b"7,381", b"38,412,907") if self._delete else set()
        point = self._fitting(other, b"7.5", b"38.125")
        power = self._fitting(other, b"7.5e-05", b"3e+02") if self._exponents else set()
        sign = self._fitting(other, b"-7", b"-38")
        return {
            i: (b"-?" if i in sign else b"")
            + (rb"(?:0{1,3}(?:,000)+|0+)" if i in grouped else b"0+")
            + (rb"(?:\.0+)?" if i in point else b"")
            + (rb"(?:[eE][-+]?0+)?" if i in power else b"")
            for i in whole
        }

    def _fitting(self, tokens: list[int], *texts: bytes) -> set[int]:
        """Those of `tokens` that are read for what they are also when they look like `texts`."""
        if all(self._fits(tokens, text) for text in texts):
            return set(tokens)
        return {i for i in tokens if all(self._fits([i], text) for text in texts)}

    def _fits(self, tokens: list[int], text: bytes) -> bool:
        expected = self._reading
        for index in tokens:
            role = self._roles[index]
            if role is not None:
                expected = _set(expected, role, text)
        return _equal(self._with(dict.fromkeys(tokens, text)), expected)

    def _spaces_vary(self) -> bool:
        """Whether numbers may be set further to the right."""
        wider = {
            index: b"   " + self._line[start:stop]
            for index, (start, stop) in enumerate(self._spans)
            if self._line[:start].endswith(b" ")
        }
        return _equal(self._with(wider), self._reading)

    def _with(self, texts: Mapping[int, bytes]) -> Reading | None:
        """What is read with other texts for some tokens."""
        parts, end = [], 0
        for index, text in texts.items():
            start, stop = self._spans[index]
            parts += [self._line[end:start], text]
            end = stop
        readings = self._read(b"".join([*parts, self._line[end:]]))
        return readings[0] if len(readings) == 1 else None


def _literal(text: bytes, spaces_vary: bool) -> bytes:
    parts, end = [], 0
    for fill in _FILL.finditer(text):
        parts += [re.escape(text[end : fill.start()]), _FILL.pattern]
        end = fill.end()
    rest = text[end:]
    bare = rest.rstrip(b" ")
    if spaces_vary and len(bare) < len(rest):
        return b"".join([*parts, re.escape(bare), b" +"])
    return b"".join([*parts, re.escape(rest)])


def _led(run: bytes) -> int:
    return len(run) - len(run.lstrip(b","))


def _trailed(run: bytes) -> int:
    return len(run) - len(run.rstrip(b","))


def _varied(token: bytes, table: bytes) -> bytes:
    """The token with other digits; an exponent stays."""
    at = max(token.find(b"e"), token.find(b"E"))
    if at < 0:
        return token.translate(table)
    return token[:at].translate(table) + token[at:]


def _nice(ratio: float) -> float:
    for scale in (1.0, *UNITS.values()):
        if math.isclose(ratio, scale, rel_tol=1e-9):
            return scale
    return ratio


def _changed(one: Reading, other: Reading | None) -> tuple[str, float] | None:
    """The first thing of a reading that is another number now."""
    if other is None or len(one.values) != len(other.values):
        return None
    for mark in MARKS:
        value = getattr(other, mark)
        if value is not None and value != getattr(one, mark):
            return mark, float(value)
    for (key, value), (other_key, other_value) in zip(one.values, other.values, strict=True):
        if key == other_key and repr(value) != repr(other_value):
            return key, other_value
    return None


def _set(reading: Reading, role: tuple[str, float], text: bytes) -> Reading:
    name, scale = role
    value = (number(text) or 0.0) * scale
    if name in MARKS and name not in dict(reading.values):
        return replace(reading, **{name: int(value) if name == "rank" else value})  # type: ignore[arg-type]
    told = [(key, value if key == name else old) for key, old in reading.values]
    return replace(reading, values=told)


def _equal(one: Reading | None, other: Reading) -> bool:
    # repr, since NaN is to equal NaN.
    return one is not None and repr(one) == repr(other)
