"""Learns a template from one line by experiment.

Each number token is replaced by other numbers and the line is read again. A token without any
effect is ignored; one to which a single value is proportional is that value's column; any other
must stay as it is. So nothing here depends on dialects, and what is read in bulk is what the line's
reader would have returned.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from trainer_runtime.core.diagnosis.parse.number_tokens import ZEROS, NumberTokens
from trainer_runtime.core.diagnosis.parse.points import Reading, StepFrom
from trainer_runtime.core.diagnosis.parse.quantities import UNITS, number
from trainer_runtime.core.diagnosis.parse.template import MARKS, Column, Template

Reader = Callable[[bytes], list[Reading]]

# Without the sign a line of this shape would have one number with a comma between thousands.
_SIGN_AFTER_COMMA = re.compile(rb"\d,[-+.]")
_PLAIN = re.compile(rb"[-+]?\d+(?:,\d{3})*(?:\.\d*)?(?:[eE][-+]?\d+)?")
# Other digits than a token's own, never 0, so that no value loses a place.
_OTHER_DIGITS = (
    bytes.maketrans(b"0123456789", b"4725183694"),
    bytes.maketrans(b"0123456789", b"2618394755"),
)


@dataclass(frozen=True, slots=True)
class _Role:
    """What a token stands for: the value or mark `name` is the token times `scale`."""

    name: str
    scale: float


# The role of each token that may vary; None: it has no effect.
_Roles = dict[int, "_Role | None"]


@dataclass(frozen=True, slots=True)
class _Experiment:
    """A line that is read as `reading`, to be read again with other numbers."""

    tokens: NumberTokens
    reading: Reading
    read: Reader

    def read_with(self, texts: Mapping[int, bytes]) -> Reading | None:
        """The reading with other texts for some tokens; None unless there is exactly one."""
        readings = self.read(self.tokens.replaced(texts))
        return readings[0] if len(readings) == 1 else None

    def confirms(self, roles: _Roles, indexes: Sequence[int], text: bytes) -> bool:
        """Whether the tokens `indexes` keep their roles with `text` in place of each."""
        expected = self.reading
        for index in indexes:
            role = roles[index]
            if role is not None:
                expected = _with_role(expected, role, text)
        return _is_equal(self.read_with(dict.fromkeys(indexes, text)), expected)


def learn(line: bytes, reading: Reading, read: Reader) -> Template | None:
    """The template of `line`, which `read` reads as `reading`; None if bulk reading can't work."""
    if reading.events or (reading.source is StepFrom.LINE and reading.step is None):
        return None
    tokens = None if _SIGN_AFTER_COMMA.search(line) else NumberTokens.of(line)
    if tokens is None:
        return None
    experiment = _Experiment(tokens, reading, read)
    roles, fixed = _roles(experiment)
    columns, marks = _columns(reading, roles)
    if not (roles or fixed) or not _has_all_marks(reading, marks):
        return None
    forms = _forms(experiment, roles)
    spaces_vary = _is_equal(experiment.read_with(tokens.indented()), reading)
    shape = re.compile(tokens.pattern(forms, spaces_vary, b"0"))
    if not shape.fullmatch(line.translate(ZEROS)):
        return None
    lines = re.compile(b"^" + tokens.pattern(forms, spaces_vary, rb"\d") + b"$", re.MULTILINE)
    width = len(tokens.texts)
    return Template(
        reading, shape, lines, tokens.table, tokens.delete, width, columns, marks, fixed
    )


def _roles(experiment: _Experiment) -> tuple[_Roles, list[tuple[int, bytes]]]:
    """The roles of the tokens that may vary, and the tokens that must stay as they are."""
    roles: _Roles = {}
    fixed: list[tuple[int, bytes]] = []
    for index, token in enumerate(experiment.tokens.texts):
        text = experiment.tokens.original(index)
        if not any(48 <= byte < 58 for byte in text):
            continue
        is_plain = _PLAIN.fullmatch(text) is not None
        others = [_with_other_digits(text, table) for table in _OTHER_DIGITS]
        readings = [experiment.read_with({index: other}) for other in others]
        if all(_is_equal(reading, experiment.reading) for reading in readings):
            if is_plain:
                roles[index] = None
            continue
        role = _role(experiment.reading, text, others, readings) if is_plain else None
        if role is None:
            fixed.append((index, token))
        else:
            roles[index] = role
    return roles, fixed


def _role(
    base: Reading, text: bytes, others: Sequence[bytes], readings: Sequence[Reading | None]
) -> _Role | None:
    """The role of a token: what is proportional to it, if that is one thing alone."""
    changed = _first_change(base, readings[0])
    divisor = number(others[0])
    if changed is None or not divisor:
        return None
    role = _Role(changed[0], _known_scale(changed[1] / divisor))
    for other, reading in ((text, base), *zip(others, readings, strict=True)):
        if not _is_equal(reading, _with_role(base, role, other)):
            return None
    return role


def _columns(reading: Reading, roles: _Roles) -> tuple[dict[str, Column], dict[str, Column]]:
    """The columns of values, constant unless a token has the role, and those of marks."""
    columns = {key: Column(None, 1.0, value) for key, value in reading.values}
    marks: dict[str, Column] = {}
    for index, role in roles.items():
        if role is not None:
            target = marks if role.name in MARKS and role.name not in columns else columns
            target[role.name] = Column(index, role.scale)
    return columns, marks


def _has_all_marks(reading: Reading, marks: Mapping[str, Column]) -> bool:
    """Whether each mark of the reading comes from a token; a rank of the line may be constant."""
    needed = [mark for mark in MARKS if getattr(reading, mark) not in (None, 0)]
    return all(mark in marks or mark == "rank" for mark in needed)


def _forms(experiment: _Experiment, roles: _Roles) -> dict[int, bytes]:
    """For each token that varies an expression, in zeros, for the forms that it may take."""
    names = {index: role.name if role else "" for index, role in roles.items()}
    free = [index for index, name in names.items() if name != "rank"]
    values = [index for index in free if names[index] not in MARKS]

    def accepting(indexes: list[int], *texts: bytes) -> set[int]:
        """The tokens that are still read correctly in the form of `texts`."""
        if all(experiment.confirms(roles, indexes, text) for text in texts):
            return set(indexes)
        return {i for i in indexes if all(experiment.confirms(roles, [i], text) for text in texts)}

    tokens = experiment.tokens
    whole = accepting(free, b"7", b"38")
    grouped = accepting(values, b"7,381", b"38,412,907") if tokens.delete else set()
    point = accepting(values, b"7.5", b"38.125")
    power = accepting(values, b"7.5e-05", b"3e+02") if tokens.has_exponents else set()
    sign = accepting(values, b"-7", b"-38")
    return {
        i: (b"-?" if i in sign else b"")
        + (rb"(?:0{1,3}(?:,000)+|0+)" if i in grouped else b"0+")
        + (rb"(?:\.0+)?" if i in point else b"")
        + (rb"(?:[eE][-+]?0+)?" if i in power else b"")
        for i in whole
    }


def _with_other_digits(token: bytes, table: bytes) -> bytes:
    """The token with other digits; an exponent is kept."""
    at = max(token.find(b"e"), token.find(b"E"))
    if at < 0:
        return token.translate(table)
    return token[:at].translate(table) + token[at:]


def _known_scale(ratio: float) -> float:
    """The unit's exact factor instead of a ratio with rounding errors."""
    for scale in (1.0, *UNITS.values()):
        if math.isclose(ratio, scale, rel_tol=1e-9):
            return scale
    return ratio


def _first_change(one: Reading, other: Reading | None) -> tuple[str, float] | None:
    """The first mark or value that differs, with its new value."""
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


def _with_role(reading: Reading, role: _Role, text: bytes) -> Reading:
    """The reading that is expected with `text` for the token of this role."""
    value = (number(text) or 0.0) * role.scale
    if role.name in MARKS and role.name not in dict(reading.values):
        mark = int(value) if role.name == "rank" else value
        return replace(reading, **{role.name: mark})  # type: ignore[arg-type]
    values = [(key, value if key == role.name else old) for key, old in reading.values]
    return replace(reading, values=values)


def _is_equal(one: Reading | None, other: Reading) -> bool:
    # By repr, so that NaN equals NaN.
    return one is not None and repr(one) == repr(other)
