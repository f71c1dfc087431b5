"""Learns a template from one line by experiment.

Each number token is replaced by other numbers and the line is read again. A token without any
effect is ignored; one to which a single value is proportional is that value's column; any other
must stay as it is. So nothing here depends on dialects, and what is read in bulk is what the line's
reader would have returned.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import cycle

from trainer_runtime.core.diagnosis.parse.columns import Column
from trainer_runtime.core.diagnosis.parse.number_tokens import ZEROS, NumberTokens
from trainer_runtime.core.diagnosis.parse.points import Reading, StepFrom
from trainer_runtime.core.diagnosis.parse.quantities import UNITS, number
from trainer_runtime.core.diagnosis.parse.template import MARKS, Template

Reader = Callable[[bytes], list[Reading]]

# Without the sign a line of this shape would have one number with a comma between thousands.
_SIGN_AFTER_COMMA = re.compile(rb"\d,[-+.]")
_PLAIN = re.compile(rb"[-+]?\d+(?:,\d{3})*(?:\.\d*)?(?:[eE][-+]?\d+)?")
# Other digits than a token's own, in both, and never 0, so that no value loses a place.
_OTHER_DIGITS = (
    bytes.maketrans(b"0123456789", b"4756183291"),
    bytes.maketrans(b"0123456789", b"2618394155"),
)
# Digits of special values, and any others.
_SAME_SHAPE = tuple(
    bytes.maketrans(b"0123456789", digits) for digits in (b"0" * 10, b"1" * 10, b"4725183694")
)
_AS_THEY_ARE = bytes(range(256))
_DIGIT = re.compile(rb"\d")
_RUN = 8  # neighbouring tokens of a long line that are tried together


@dataclass(frozen=True, slots=True)
class _Role:
    """What a token stands for: the value or mark `name` is the token times `scale`."""

    name: str
    scale: float


# The roles of each token that may vary, none if it has no effect.
_Roles = dict[int, "tuple[_Role, ...]"]


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
            expected = _with_roles(expected, roles[index], text)
        return _is_equal(self.read_with(dict.fromkeys(indexes, text)), expected)


def learn(line: bytes, reading: Reading, read: Reader) -> Template | None:
    """The template of `line`, which `read` reads as `reading`; None if bulk reading can't work."""
    if not is_learnable(reading):
        return None
    tokens = None if _SIGN_AFTER_COMMA.search(line) else NumberTokens.of(line)
    if tokens is None:
        return None
    experiment = _Experiment(tokens, reading, read)
    roles, fixed = _roles(experiment)
    columns, marks = _columns(reading, roles)
    if not (roles or fixed) or not _has_all_marks(reading, marks):
        return None
    if not _reads_zeros(experiment, roles):
        return None
    forms = _forms(experiment, roles)
    padded = _padded(experiment)
    shape = re.compile(tokens.pattern(forms, padded, b"0"))
    if not shape.fullmatch(line.translate(ZEROS)):
        return None
    lines = b"^" + tokens.pattern(forms, padded, rb"\d") + b"$"
    width = len(tokens.texts)
    return Template(
        reading, shape, lines, tokens.table, tokens.delete, width, columns, marks, fixed
    )


def is_learnable(reading: Reading) -> bool:
    """Whether lines with such readings differ in their numbers: not those that report an event or
    a fact alone, which are rare and mostly the same each time."""
    if not reading.values and (reading.events or reading.step is None):
        return False
    return reading.source is not StepFrom.LINE or reading.step is not None


def is_noise(line: bytes, read: Reader) -> bool:
    """Whether `read` finds nothing in lines of exactly this shape."""
    return not any(read(line.translate(table)) for table in _SAME_SHAPE)


def learn_noise(line: bytes, read: Reader) -> re.Pattern[bytes] | None:
    """An expression for the shapes of lines like `line`, in which `read` finds nothing; None if it
    finds something in one with other numbers.

    Zeros and ones are tried too, since whole numbers may be read where others are not.
    """
    if not _DIGIT.search(line):
        return re.compile(re.escape(line))
    if not is_noise(line, read):
        return None
    tokens = None if _SIGN_AFTER_COMMA.search(line) else NumberTokens.of(line)
    if tokens is None:
        return re.compile(re.escape(line.translate(ZEROS)))
    plain = [i for i in range(len(tokens.texts)) if _PLAIN.fullmatch(tokens.original(i))]

    def without_effect(indexes: list[int], *texts: bytes) -> set[int]:
        """The tokens with any of `texts` in whose place there is still nothing."""
        tried = [text.translate(table) for text in texts for table in (_AS_THEY_ARE, *_SAME_SHAPE)]

        def is_nothing(part: Sequence[int]) -> bool:
            return not any(read(tokens.replaced(dict.fromkeys(part, text))) for text in tried)

        return _passing(indexes, is_nothing)

    forms = _expressions(tokens, without_effect, plain, plain)
    pattern = re.compile(tokens.pattern(forms, (), b"0"))
    return pattern if pattern.fullmatch(line.translate(ZEROS)) else None


def _roles(experiment: _Experiment) -> tuple[_Roles, list[tuple[int, bytes]]]:
    """The roles of the tokens that may vary, and the tokens that must stay as they are."""
    roles: _Roles = {}
    fixed: list[tuple[int, bytes]] = []
    tokens = experiment.tokens
    with_digits = [i for i in range(len(tokens.texts)) if _DIGIT.search(tokens.original(i))]
    for index in _without_idle_runs(experiment, with_digits, roles):
        token, text = tokens.texts[index], tokens.original(index)
        is_plain = _PLAIN.fullmatch(text) is not None
        others = [_with_other_digits(text, table) for table in _OTHER_DIGITS]
        readings = [experiment.read_with({index: other}) for other in others]
        if all(_is_equal(reading, experiment.reading) for reading in readings):
            if is_plain:
                roles[index] = ()
            continue
        found = _roles_of(experiment.reading, text, others, readings) if is_plain else ()
        if found:
            roles[index] = found
        else:
            fixed.append((index, token))
    return roles, fixed


def _reads_zeros(experiment: _Experiment, roles: _Roles) -> bool:
    """Whether zeros are values like others: HF prints a loss that is not finite as one."""
    zeros = {
        index: experiment.tokens.original(index).translate(ZEROS)
        for index, found in roles.items()
        if found and all(role.name not in MARKS for role in found)
    }
    expected = experiment.reading
    for index, text in zeros.items():
        expected = _with_roles(expected, roles[index], text)
    return _is_equal(experiment.read_with(zeros), expected)


def _without_idle_runs(
    experiment: _Experiment, indexes: Sequence[int], roles: _Roles
) -> Iterator[int]:
    """The tokens that may have an effect. Of a long line, whose numbers are mostly not of interest,
    a run of neighbours without any is tried at once; neighbours get different digits."""
    run = _RUN if len(indexes) > 2 * _RUN else 1
    for begin in range(0, len(indexes), run):
        part = indexes[begin : begin + run]
        if run > 1 and _is_idle(experiment, part):
            texts = {index: experiment.tokens.original(index) for index in part}
            roles.update({index: () for index, text in texts.items() if _PLAIN.fullmatch(text)})
        else:
            yield from part


def _is_idle(experiment: _Experiment, part: Sequence[int]) -> bool:
    """Whether other digits in all of these tokens have no effect."""
    originals = [experiment.tokens.original(index) for index in part]
    for tables in (_OTHER_DIGITS, _OTHER_DIGITS[::-1]):
        others = map(_with_other_digits, originals, cycle(tables))
        reading = experiment.read_with(dict(zip(part, others, strict=False)))
        if not _is_equal(reading, experiment.reading):
            return False
    return True


def _passing(indexes: list[int], passes: Callable[[Sequence[int]], bool]) -> set[int]:
    """Those of the tokens that pass a trial, in which many are tried together."""
    if not indexes or passes(indexes):
        return set(indexes)
    if len(indexes) == 1:
        return set()
    middle = len(indexes) // 2
    return _passing(indexes[:middle], passes) | _passing(indexes[middle:], passes)


def _roles_of(
    base: Reading, text: bytes, others: Sequence[bytes], readings: Sequence[Reading | None]
) -> tuple[_Role, ...]:
    """The roles of a token that has an effect, if everything that changes is proportional to it.

    An epoch, for instance, may also be the step.
    """
    divisor = number(others[0])
    if not divisor:
        return ()
    changes = _changes(base, readings[0])
    roles = tuple(_Role(name, _known_scale(value / divisor)) for name, value in changes)
    for other, reading in ((text, base), *zip(others, readings, strict=True)):
        if not _is_equal(reading, _with_roles(base, roles, other)):
            return ()
    return roles


def _columns(reading: Reading, roles: _Roles) -> tuple[dict[str, Column], dict[str, Column]]:
    """The columns of values, constant unless a token has the role, and those of marks."""
    columns = {key: Column(None, value=value) for key, value in reading.values}
    marks: dict[str, Column] = {}
    for index, found in roles.items():
        for role in found:
            target = marks if role.name in MARKS and role.name not in columns else columns
            target[role.name] = Column(index, role.scale)
    if reading.lap_steps is not None:  # where a fact depends on it too, its token is fixed
        marks.setdefault("lap_steps", Column(None, value=reading.lap_steps))
    return columns, marks


def _has_all_marks(reading: Reading, marks: Mapping[str, Column]) -> bool:
    """Whether each mark of the reading comes from a token; a rank of the line may be constant."""
    needed = [mark for mark in MARKS if getattr(reading, mark) is not None]
    return all(mark in marks or mark == "rank" for mark in needed)


def _forms(experiment: _Experiment, roles: _Roles) -> dict[int, bytes]:
    """For each token that varies an expression, in zeros, for the forms that it may take."""
    names = {index: {role.name for role in found} for index, found in roles.items()}
    free = [index for index in roles if "rank" not in names[index]]
    values = [index for index in free if names[index].isdisjoint(MARKS)]

    def accepting(indexes: list[int], *texts: bytes) -> set[int]:
        """The tokens that are still read correctly in the form of `texts`."""
        return _passing(
            indexes,
            lambda part: all(experiment.confirms(roles, part, text) for text in texts),
        )

    return _expressions(experiment.tokens, accepting, free, values)


def _padded(experiment: _Experiment) -> Collection[int]:
    """The tokens before which the number of spaces may vary."""
    indented = experiment.tokens.indented()

    def changes_nothing(indexes: Collection[int]) -> bool:
        texts = {index: indented[index] for index in indexes}
        return _is_equal(experiment.read_with(texts), experiment.reading)

    padded = sorted(_passing(list(indented), changes_nothing))
    return padded if len(padded) == len(indented) or changes_nothing(padded) else ()


def _expressions(
    tokens: NumberTokens, accepting: Callable[..., set[int]], free: list[int], values: list[int]
) -> dict[int, bytes]:
    """For each of the tokens `free` an expression for the forms in which `accepting` accepts it;
    only `values` may have others than whole numbers."""
    whole = accepting(free, b"7", b"38")
    grouped = accepting(values, b"7,381", b"38,412,907") if tokens.delete else set()
    point = accepting(values, b"7.5", b"38.125")
    power = accepting(sorted(point), b"7.5e-05", b"3e+02") if tokens.has_exponents else set()
    sign = accepting(sorted(whole & point), b"-7", b"-38")
    # Where a whole number would be read as another field, one with a point may still vary.
    forms = {
        i: (b"-?" if i in sign else b"")
        + (rb"(?:0{1,3}(?:,000)+|0+)" if i in grouped else b"0+")
        + ((rb"(?:\.0+)?" if i in whole else rb"\.0+") if i in point else b"")
        + (rb"(?:[eE][-+]?0+)?" if i in power else b"")
        for i in whole | point
    }
    own = {i: tokens.original(i).translate(ZEROS) for i in forms}
    return {i: form for i, form in forms.items() if re.fullmatch(form, own[i])}


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


def _changes(one: Reading, other: Reading | None) -> list[tuple[str, float]]:
    """The marks and values that differ, with their new values; none if the keys differ."""
    if other is None or [key for key, _ in one.values] != [key for key, _ in other.values]:
        return []
    changes = [
        (mark, float(value))
        for mark in MARKS
        if (value := getattr(other, mark)) is not None and value != getattr(one, mark)
    ]
    for (key, value), (_, other_value) in zip(one.values, other.values, strict=True):
        if repr(value) != repr(other_value):
            changes.append((key, other_value))
    return changes


def _with_roles(reading: Reading, roles: Sequence[_Role], text: bytes) -> Reading:
    """The reading that is expected with `text` for the token of these roles."""
    if not roles:
        return reading
    known = number(text) or 0.0
    values = dict(reading.values)
    marks = {name: getattr(reading, name) for name in MARKS}
    for role in roles:
        value = known * role.scale
        if role.name in marks and role.name not in values:
            marks[role.name] = int(value) if role.name == "rank" else value
        else:
            values[role.name] = value
    return Reading(
        reading.clock,
        list(values.items()),
        source=reading.source,
        rounded=reading.rounded,
        taught=reading.taught,
        loss_as=reading.loss_as,
        counts_epochs=reading.counts_epochs,
        heads=reading.heads,
        events=reading.events,
        facts=reading.facts,
        **marks,
    )


def _is_equal(one: Reading | None, other: Reading) -> bool:
    if one is None or one == other:
        return one is not None
    # By repr, so that NaN equals NaN.
    return any(map(math.isnan, dict(other.values).values())) and repr(one) == repr(other)
